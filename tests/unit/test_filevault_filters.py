"""`filter.xml` and `properties.xml`, both ways, and what is refused in them."""

from __future__ import annotations

import re
import string
import time
from contextlib import nullcontext

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mailboat.errors import (
    LimitExceededError,
    PackageCorruptError,
    PathRefusedError,
    UnknownRequiredFeatureError,
    UntrustedInputError,
)
from mailboat.model.filters import MAX_RULES, FilterRule, FilterSet, ImportMode, WorkspaceFilter, filter_for
from mailboat.model.paths import NodePath
from mailboat.packages.filevault.filter_xml import MAX_FILTER_BYTES, format_filter, parse_filter
from mailboat.packages.filevault.patterns import MAX_NESTED, MAX_PATTERN_LENGTH, compile_java, java_form, quote_java
from mailboat.packages.filevault.properties import (
    PROPERTIES_XML,
    check_properties,
    format_properties,
    package_id,
    parse_properties,
    with_package_type,
)
from mailboat.packages.port import refusals_of


def parsed(inner: str) -> WorkspaceFilter:
    return parse_filter(f'<?xml version="1.0"?><workspaceFilter version="1.0">{inner}</workspaceFilter>'.encode())


# ---------------------------------------------------------------------------------------------------------- filters


def test_rules_decide_as_in_filevault() -> None:
    found = parsed(
        '<filter root="/content/a"><exclude pattern="/content/a/x(/.*)?"/><include pattern="/content/a/x/y"/></filter>'
        '<filter root="/content/c" mode="merge_properties"/>'
    )
    covered = {path: found.covers(NodePath(path)) for path in ["/content/a/z", "/content/a/x", "/content/a/x/y", "/b"]}
    assert covered == {"/content/a/z": True, "/content/a/x": False, "/content/a/x/y": True, "/b": False}
    assert [filter_set.mode for filter_set in found.sets] == [ImportMode.REPLACE, ImportMode.MERGE_PROPERTIES]


@pytest.mark.parametrize(("old", "new"), [("MERGE", ImportMode.MERGE), ("update", ImportMode.UPDATE_PROPERTIES)])
def test_deprecated_modes_become_those_that_never_delete(old: str, new: ImportMode) -> None:
    assert parsed(f'<filter root="/a" mode="{old}"/>').sets[0].mode is new


def test_a_shallow_root_is_written_as_sling_writes_it() -> None:
    shallow = filter_for([NodePath("/content/a")], [])
    text = format_filter(shallow)
    assert 'pattern="\\Q/content/a\\E"' in text
    assert parse_filter(text.encode()) == shallow


def test_rules_for_properties_are_kept_apart() -> None:
    found = parsed('<filter root="/a"><exclude pattern=".*/p" matchProperties="true"/></filter>')
    assert found.covers(NodePath("/a/b"))
    assert not found.sets[0].covers_property(NodePath("/a"), "p")
    assert parse_filter(format_filter(found).encode()) == found


@given(
    st.lists(
        st.sampled_from(["/", "/a", "/content/\u00e4 b", "/a/&amp", "/x/<y>", '/q"', "/content/site/p1"]),
        min_size=1,
        unique=True,
    ),
    st.sampled_from(ImportMode),
    st.booleans(),
)
def test_any_filter_comes_back(roots: list[str], mode: ImportMode, is_shallow: bool) -> None:
    rule = FilterRule(False, compile_java("/a/[^/]+/b"))
    sets = tuple(
        FilterSet(NodePath(root), is_shallow, () if is_shallow else (rule,) * (index % 2), (), mode)
        for index, root in enumerate(roots)
    )
    assert parse_filter(format_filter(WorkspaceFilter(sets)).encode()) == WorkspaceFilter(sets)


@pytest.mark.parametrize(
    "document",
    [
        "",
        "<x/>",
        '<workspaceFilter version="2.0"><filter root="/a"/></workspaceFilter>',
        '<workspaceFilter version="1.0"><filter root="/a" mode="wipe"/></workspaceFilter>',
        '<workspaceFilter version="x"><filter root="/a"/></workspaceFilter>',
        '<workspaceFilter version="1.0"><include pattern="a"/></workspaceFilter>',
        '<workspaceFilter version="1.0"><filter root="/a"><include/></filter></workspaceFilter>',
        '<!DOCTYPE x [<!ENTITY a "b">]><workspaceFilter version="1.0"/>',
        '<!DOCTYPE workspaceFilter SYSTEM "http://example.org/x.dtd"><workspaceFilter version="1.0"/>',
    ],
)
def test_a_filter_that_is_not_one_is_refused(document: str) -> None:
    with pytest.raises(UntrustedInputError):
        parse_filter(document.encode())


@pytest.mark.parametrize("one_more", [0, 1])
def test_a_filter_counts_as_many_roots_and_rules_as_its_reader(one_more: int) -> None:
    shallow = [FilterSet(NodePath(f"/c/{number}"), is_shallow=True) for number in range(MAX_RULES // 2 + one_more)]
    workspace = WorkspaceFilter(tuple(shallow))
    assert (workspace.rule_count > MAX_RULES) == bool(one_more)
    with pytest.raises(LimitExceededError) if one_more else nullcontext():
        assert parse_filter(format_filter(workspace).encode()) == workspace


def test_a_filter_without_elements_is_refused_with_a_next_step() -> None:
    """FileVault would import nodes that are missing."""
    with pytest.raises(PackageCorruptError, match="root") as refused:
        parsed("")
    assert "name each root" in (refused.value.next_step or "")


@pytest.mark.parametrize("inner", ["<filter/>", '<filter root=""/>'])
def test_a_filter_without_a_root_is_of_everything(inner: str) -> None:
    assert parsed(inner) == WorkspaceFilter((FilterSet(NodePath("/")),))


@pytest.mark.parametrize("root", ["/a/../b", "/a/./b", "/a//", "/a[1]/../b"])
def test_a_root_that_means_another_path_is_refused(root: str) -> None:
    """FileVault removes what is at the other path."""
    with pytest.raises(PathRefusedError, match=r"META-INF/vault/filter\.xml"):
        parsed(f'<filter root="{root}"/>')


@pytest.mark.parametrize("root", ["a/b", "/a//b", " /a", "//", "."])
def test_a_root_at_which_filevault_has_nothing_is_left_out(root: str) -> None:
    ignored = f'<filter root="{root}"><exclude pattern="/a/b"/></filter>'
    assert parsed(f'{ignored}<filter root="/a"/>') == WorkspaceFilter((FilterSet(NodePath("/a")),))
    with pytest.raises(PackageCorruptError, match="names no root"):
        parsed(ignored)


@pytest.mark.parametrize("version", ["1", "1.0", " 1.0d ", "0.5", ""])
def test_versions_are_numbers_of_java(version: str) -> None:
    document = f'<workspaceFilter version="{version}"><filter root="/a"/></workspaceFilter>'
    assert parse_filter(document.encode()) == WorkspaceFilter((FilterSet(NodePath("/a")),))


@pytest.mark.parametrize("said", ['type="foo"', 'type="CLEANUP"', 'type=""', 'mode=""'])
def test_an_unknown_type_or_empty_mode_says_nothing(said: str) -> None:
    assert parsed(f'<filter root="/a/" {said}/>') == WorkspaceFilter((FilterSet(NodePath("/a")),))


def test_a_filter_beyond_the_limits_is_refused() -> None:
    with pytest.raises(LimitExceededError, match="bytes"):
        parse_filter(b" " * (MAX_FILTER_BYTES + 1))
    with pytest.raises(LimitExceededError, match="too many roots and rules"):
        parsed('<filter root="/a"/>' * 10_001)


# --------------------------------------------------------------------------------------------------------- patterns


@pytest.mark.parametrize(
    ("pattern", "matches", "differs"),
    [
        ("/content/dam(/.*)?", "/content/dam/a", "/content/damage"),
        ("\\Q/a.b\\E/.*", "/a.b/c", "/aXb/c"),
        ("\\Q/a", "/a", "/ab"),
        ("/a/[^/]+/b", "/a/x/b", "/a/x/y/b"),
        (".*/jcr:content/.*", "/a/jcr:content/b", "/a/b"),
        ("/a/(?:b|c)\\z", "/a/b", "/a/d"),
        ("/a\\.b", "/a.b", "/aab"),
        ("(?i)/A", "/a", "/b"),
        ("/a{2}", "/aa", "/a"),
        ("/([^/]+/)*x", "/a/b/x", "/a/b/xy"),
        ("/a*+a?b", "/aab", "/aac"),
        ("/a*+ab|/b", "/b", "/aab"),
        ("/[^/]++/b", "/a/b", "/b"),
        ("/a?+ab|/b", "/aab", "/ab"),
        ("/a{1,2}+ab|/b", "/aaab", "/aab"),
        ("/\\Qa.\\E{2,}+x", "/a..x", "/a.x"),
        ("/.*+", "/a/b", "a"),
        ("/\\p{Lower}+", "/az", "/aZ"),
        ("/\\P{Upper}+x", "/a\u00c4x", "/aAx"),
        ("/[\\p{Alnum}_]++/b", "/aZ9_/b", "/\u00e4/b"),
        ("/[^\\p{Punct}]", "/a", "/["),
        ("/[-\\p{XDigit}]", "/-", "/g"),
        ("/[^-\\p{Space}]", "/a", "/-"),
        ("(?i)/\\p{Alpha}\\p{ASCII}", "/A ", "/a\u212a"),
        ("/[a-z&&[^aeiou]]+", "/xyz", "/xay"),
        ("/[\\w\\-&&[^\\d]]", "/-", "/7"),
        ("/[\\p{Punct}&&[^\\]/]]++x", "/[^-|x", "/]x"),
        ("/[\\w&&]x", "", ""),
    ],
)
def test_expressions_mean_what_they_mean_in_java(pattern: str, matches: str, differs: str) -> None:
    if not matches:
        with pytest.raises(PackageCorruptError, match="different things"):
            compile_java(pattern)
        return
    compiled = compile_java(pattern)
    assert compiled.fullmatch(matches)
    assert not compiled.fullmatch(differs)
    assert compile_java(java_form(compiled)).fullmatch(matches)


POSIX = {
    "Lower": string.ascii_lowercase,
    "Upper": string.ascii_uppercase,
    "Alpha": string.ascii_letters,
    "Digit": string.digits,
    "Alnum": string.ascii_letters + string.digits,
    "XDigit": string.hexdigits,
    "Punct": string.punctuation,
    "Graph": string.ascii_letters + string.digits + string.punctuation,
    "Print": string.ascii_letters + string.digits + string.punctuation + " ",
    "ASCII": string.ascii_letters + string.digits + string.punctuation + " ",
    "Blank": " ",
    "Space": " ",
}


@pytest.mark.parametrize("name", POSIX)
def test_a_class_of_posix_has_what_it_has_in_java(name: str) -> None:
    texts = [*map(chr, range(0x20, 0x7F)), "\u00aa", "\u00c4", "\u0661", "\u2003", "\u212a", "\U0001d400"]
    for pattern in (f"\\p{{{name}}}", f"[\\p{{{name}}}]", f"(?!\\P{{{name}}})."):
        compiled = compile_java(pattern)
        assert [text for text in texts if compiled.fullmatch(text)] == sorted(POSIX[name])


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+b",
        "(.*)*",
        "(a|aa)+b",
        ".*.*.*.*x",
        "(.*a){11}",
        "a{1,5000}",
        "x" * (MAX_PATTERN_LENGTH + 1),
    ],
)
def test_an_expression_that_could_run_for_ever_is_refused(pattern: str) -> None:
    with pytest.raises(LimitExceededError):
        compile_java(pattern)


@pytest.mark.parametrize("opening", ["(", "(?:", "(?=", "(?i:"])
def test_groups_are_nested_up_to_a_limit(opening: str) -> None:
    def nested(depth: int) -> str:
        return opening * depth + "a" + ")" * depth

    compile_java(nested(MAX_NESTED))
    with pytest.raises(LimitExceededError, match="nested too deep") as caught:
        compile_java(nested(MAX_NESTED + 1))
    assert caught.value.where["limit"] == MAX_NESTED


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        "a)",
        "[",
        "*",
        "\\1",
        "\\p{L}",
        "(?<n>a)",
        "(?P<n>a)",
        "[a[b]]",
        "[a&&b]",
        "[a&&[b]]",
        "[^a&&[b]]",
        "[\\W&&[^.]]",
        "[a-\u00e4&&[^b]]",
        "[a&&[b]&&[c]]",
        "(?i)[a-z&&[^b]]",
        "\\E",
        "a\\",
        "[\\p{L}]",
        "\\pL",
        "[\\P{Lower}_]",
        "[a-\\p{Digit}]",
        "[a^-\\p{Digit}]",
        "(?i)\\p{Lower}",
        "(?i:a[\\p{Upper}])",
        "a**",
        "a*++",
        "a++?",
        "(?>a)",
        "(?:ab)++",
        "^*+",
    ],
)
def test_an_expression_that_python_understands_otherwise_is_refused(pattern: str) -> None:
    with pytest.raises(PackageCorruptError):
        compile_java(pattern)


@given(st.text(st.sampled_from("ab.*+?()[]{}|^$\\/QE12,-"), max_size=25))
def test_any_expression_is_refused_or_quick(pattern: str) -> None:
    try:
        compiled = compile_java(pattern)
    except UntrustedInputError:
        return
    begin = time.process_time()
    compiled.fullmatch("/" + "ab" * 150 + "!")
    assert time.process_time() - begin < 1


@given(st.text(st.characters(codec="utf-8"), max_size=30))
def test_what_is_quoted_matches_itself(text: str) -> None:
    assert compile_java(quote_java(text)).fullmatch(text)


def test_flags_of_other_patterns_are_kept() -> None:
    assert compile_java(java_form(re.compile("/A", re.IGNORECASE))).fullmatch("/a")


# -------------------------------------------------------------------------------------------------------- properties


def test_properties_come_back() -> None:
    written = format_properties({"name": "a & b", "group": "<g>", "xmlns:acme": "urn:acme"})
    assert "java.sun.com/dtd/properties.dtd" in written
    found = parse_properties(written.encode())
    assert found == {"group": "<g>", "name": "a & b", "version": "1.0.0"}
    assert package_id(found) == "<g>:a & b:1.0.0"


@pytest.mark.parametrize(
    ("root", "kind"),
    [("/content/a", "content"), ("/apps", "mixed"), ("/libs/x", "mixed"), ("/", "mixed"), ("/appsx", "content")],
)
def test_a_package_without_a_type_gets_one_that_allows_its_roots(root: str, kind: str) -> None:
    assert with_package_type({}, [NodePath("/conf/a"), NodePath(root)]) == {"packageType": kind}
    assert with_package_type({"packageType": "application"}, [NodePath(root)]) == {"packageType": "application"}


@pytest.mark.parametrize(
    "properties",
    [{"Path-Mapping": "/a=/b"}, *({"packageFormatVersion": text} for text in ("3", "+3", "2147483647", "\u0663"))],
)
def test_properties_that_change_the_meaning_are_not_ignored(properties: dict[str, str]) -> None:
    with pytest.raises(UnknownRequiredFeatureError) as caught, refusals_of("x.zip"):
        check_properties(properties)
    assert caught.value.where["file"] == "x.zip"
    assert caught.value.where["entry"] == PROPERTIES_XML
    assert str(caught.value.next_step).startswith("export the package with")


def test_the_time_to_read_properties_grows_with_their_size() -> None:
    lines = "\n" * 1_000_000
    begin = time.process_time()
    assert parse_properties(f'<properties><entry key="k">{lines}</entry></properties>'.encode()) == {"k": lines}
    assert time.process_time() - begin < 1


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]) | st.sampled_from("\n\t\r]>&<"), max_size=20))
@example("]]>").via("the end of a CDATA section")
def test_any_text_of_a_property_comes_back(text: str) -> None:
    text = text.replace("\ufffe", "").replace("\uffff", "")
    assert parse_properties(format_properties({"k": text}).encode())["k"] == text


def test_a_property_of_many_lines_keeps_its_size() -> None:
    """Properties at the limit of readers stay below it."""
    lines = '\n\t>"' * 200_000
    assert len(format_properties({"k": lines})) < len(lines) + 500


def test_an_entry_may_have_other_attributes_before_its_key() -> None:
    document = '<properties><entry xml:space="preserve" key="name"> x </entry><entry key="empty"/></properties>'
    assert parse_properties(document.encode()) == {"name": " x ", "empty": ""}


def test_properties_that_mean_nothing_to_us_are_ignored() -> None:
    check_properties({"Path-Mapping": " ", "packageFormatVersion": "2", "acHandling": "merge"})


@pytest.mark.parametrize("text", ["", "x", "2.0", "-1", "1", "+2", "2147483648", " 3", "9" * 5000])
def test_a_format_version_that_java_takes_for_none_is_ignored(text: str) -> None:
    check_properties({"packageFormatVersion": text})


@pytest.mark.parametrize(
    "document",
    [
        '<!DOCTYPE properties [<!ENTITY a "aaaa">]><properties><entry key="k">&a;</entry></properties>',
        '<!DOCTYPE properties SYSTEM "x" [<!ENTITY % p SYSTEM "file:///etc/passwd"> %p;]><properties/>',
        '<properties><entry key="k">&undefined;</entry></properties>',
        "<properties><other/></properties>",
        "<properties>",
        " " * 1_100_000,
    ],
)
def test_properties_with_entities_or_other_elements_are_refused(document: str) -> None:
    with pytest.raises(UntrustedInputError):
        parse_properties(document.encode())
