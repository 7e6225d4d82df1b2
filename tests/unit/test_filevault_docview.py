"""The value grammar of DocView, by FileVault's own examples, and that every value comes back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mailboat.errors import ValueRefusedError
from mailboat.model.nodes import PropertyType
from mailboat.packages.filevault.docview import format_values, parse_values
from mailboat.testing import trees

STRING, LONG, BINARY = PropertyType.STRING, PropertyType.LONG, PropertyType.BINARY
TEXTS = st.text(st.one_of(st.sampled_from("\\,[]{}0u\0\n"), st.characters(codec="utf-8")), max_size=10)


@pytest.mark.parametrize(
    ("text", "kind", "is_multiple", "values"),
    [
        ("hello", STRING, False, ("hello",)),
        ("", STRING, False, ("",)),
        ("\\0", STRING, False, ("",)),
        ("{Long}1234", LONG, False, ("1234",)),
        ("{Long}0042", LONG, False, ("42",)),
        ("{String}1234", STRING, False, ("1234",)),
        ("{Binary}", BINARY, False, ("",)),
        ("\\{hello, world}", STRING, False, ("{hello, world}",)),
        ("{String}\\[hello", STRING, False, ("[hello",)),
        ("{String}he\\u000fllo", STRING, False, ("he\x0fllo",)),
        ("\\ud83d\\ude00", STRING, False, ("😀",)),
        ("[hello,world]", STRING, True, ("hello", "world")),
        ("[hello\\,world]", STRING, True, ("hello,world",)),
        ("[,a,b,c]", STRING, True, ("", "a", "b", "c")),
        ("[a,b,c,]", STRING, True, ("a", "b", "c", "")),
        ("[,,,]", STRING, True, ("", "", "", "")),
        ("[\\[hello,world]", STRING, True, ("[hello", "world")),
        ("[[hello],[world]]", STRING, True, ("[hello]", "[world]")),
        ("[hello,world", STRING, True, ("hello", "world")),
        ("[hello,", STRING, True, ("hello",)),
        ("[hello\\]", STRING, True, ("hello]",)),
        ("[bla{a\\,b},foo{a\\,b}]", STRING, True, ("bla{a,b}", "foo{a,b}")),
        ("{Long}[1,2]", LONG, True, ("1", "2")),
        ("{Long}[]", LONG, True, ()),
        ("{Long[1\\,2]", PropertyType.STRING, False, ("Long[1\\,2]",)),
        ("[]", STRING, True, ()),
        ("[", STRING, True, ()),
        ("[\\0]", STRING, True, ("",)),
        ("trailing\\", STRING, False, ("trailing",)),
        ("{Boolean}false}", PropertyType.BOOLEAN, False, ("false",)),
        ("{Boolean}TRUE", PropertyType.BOOLEAN, False, ("true",)),
        ("{Name}jcr:content", PropertyType.NAME, False, ("jcr:content",)),
        ("{Path}/content/dam/", PropertyType.PATH, False, ("/content/dam",)),
        ("{Path}[/,/a/]", PropertyType.PATH, True, ("/", "/a")),
        ("{WeakReference}[a,b]", PropertyType.WEAK_REFERENCE, True, ("a", "b")),
    ],
)
def test_values_as_filevault_reads_them(
    text: str, kind: PropertyType, is_multiple: bool, values: tuple[str, ...]
) -> None:
    parsed = parse_values(text)
    assert parsed[:3] == (kind, is_multiple, values)
    assert not parsed.is_reference


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0x1p3", "8.0"),
        ("-0x1.p-2d", "-0.25"),
        ("0x.8p1F", "1.0"),
        ("+.5f", "0.5"),
        (" 1.5\n", "1.5"),
        ("1e999", "Infinity"),
        ("-0x1p9999999999999999999999", "-Infinity"),
        ("0x1p-9999999999999999999999", "0.0"),
        ("+Infinity", "Infinity"),
        ("-NaN", "NaN"),
        ("1" * 500, "Infinity"),
    ],
)
def test_a_double_is_read_as_java_reads_it(text: str, value: str) -> None:
    assert parse_values(f"{{Double}}{text}")[:3] == (PropertyType.DOUBLE, False, (value,))
    assert parse_values(f"{{Double}}[{text}]")[:3] == (PropertyType.DOUBLE, True, (value,))


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("{Long}\u0663", LONG, "3"),
        ("{Long}-\u0663", LONG, "-3"),
        ("{Long}" + "0" * 5000 + "12", LONG, "12"),
        ("{Decimal}\u0663", PropertyType.DECIMAL, "3"),
        ("{Decimal}1\u0663.\u0664", PropertyType.DECIMAL, "13.4"),
        ("{Decimal}1e\u0663", PropertyType.DECIMAL, "1E+3"),
        ("{Decimal}1e00000000000000001", PropertyType.DECIMAL, "1E+1"),
        ("{Date}\u0662020-01-01T00:00:00.00\u0663Z", PropertyType.DATE, "2020-01-01T00:00:00.003Z"),
        ("{Date}2020-+1-01T-0:00:00.+00-09:30", PropertyType.DATE, "2020-01-01T00:00:00.000-09:30"),
        ("{Date}-+020-01-01T00:00:00.000Z", PropertyType.DATE, "-0020-01-01T00:00:00.000Z"),
    ],
)
def test_a_number_or_date_is_read_as_java_reads_it(text: str, kind: PropertyType, value: str) -> None:
    assert parse_values(text)[:3] == (kind, False, (value,))
    assert parse_values(text.replace("}", "}[") + "]")[:3] == (kind, True, (value,))


def test_long_decimals_and_dates_without_a_zone_are_kept() -> None:
    """As in Oak: a date without a zone has that of its reader."""
    for text in ("{Decimal}1E+2147483647", "{Decimal}" + "1" * 500, "{Date}2020-01-02T03:04:05.678"):
        kind, _, values, _ = parse_values(text)
        assert format_values(kind, values, is_multiple=False) == text
        assert kind is not PropertyType.STRING


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (".", "."),
        ("", "."),
        ("a/..", "."),
        ("/.", "."),
        ("./a/.", "a"),
        ("a/../b", "b"),
        ("/a/./b/", "/a/b"),
        ("a[1]/b[0]", "a/b"),
        ("a[2]", "a[2]"),
        ("../a", "../a"),
        ("a/../../b", "../b"),
        ("...", "..."),
        ("{urn:x/y}a/./b", "{urn:x/y}a/./b"),
    ],
)
def test_a_path_is_read_as_oak_stores_it(path: str, expected: str) -> None:
    assert parse_values(f"{{Path}}{path}")[:3] == (PropertyType.PATH, False, (expected,))


@pytest.mark.parametrize("path", ["a:", ":a", "a:b:c", "a[x]", "a[-1]", "a[", "a]", "/..", "/a/../..", "/a/./b//"])
def test_what_oak_takes_for_no_path_is_a_string(path: str) -> None:
    assert parse_values(f"{{Path}}{path}")[:3] == (PropertyType.STRING, False, (path,))


URIS = {
    True: "|a|\u00e4|a?b[c|a#b[c|a:b|a/b:c|//h|//h:x|http://[::1]/|http:///x|%41|mailto:x@y|a:?|?|#|a\u200bb|http://?x"
    "|http://#|a+b:c|a:[b]|http://u@h:1/x?y#z|//@|*|a'b",
    False: 'a b|:x|%zz|a[b|a]b|a#b#c|a:|1a:b|//|http://[x]/|a^b|a`b|a{b|a"b|a<b|%4|a:#|//[::1|h ttp://x|a\u00a0b'
    "|a\u2028b|a\u0085b|http:|http://|+a:b|a_b:c|a\u007fb|http://h/[|urn:x:\u00e4 b",
}
"""What `java.net.URI` of Java 11 takes, and what not: asked of Oak."""


@pytest.mark.parametrize("is_uri", URIS)
def test_a_uri_is_one_of_java(is_uri: bool) -> None:
    kind = PropertyType.URI if is_uri else PropertyType.STRING
    for text in URIS[is_uri].split("|"):
        assert parse_values(f"{{URI}}{text}") == (kind, False, (text,), False)


@pytest.mark.parametrize(
    "text", ["{URI}//" + "a" * 10**6 + " ", "{Path}a:" + "b" * 10**6, "{URI}" + "%41" * 10**5 + "%"]
)
def test_time_to_read_a_value_grows_with_its_length(text: str) -> None:
    assert parse_values(text)[1:3] == (False, (text.partition("}")[2],))


@pytest.mark.parametrize(
    "text",
    [
        "{Long}[1,x]",
        "{Double}[1,x]",
        "{Decimal}[ 1]",
        "{Date}[2020-01-02T03:04Z]",
        "{Path}[/a/../..]",
        "{Nothing}1",
        "{hello, world}",
        "\\u12",
        "\\ud83d",
    ],
)
def test_what_filevault_guesses_at_is_refused(text: str) -> None:
    with pytest.raises(ValueRefusedError):
        parse_values(text)


@pytest.mark.parametrize(
    "text",
    [
        "{Long}forty-two",
        "{Long}9223372036854775808",
        "{Date}today",
        "{Date}1582-10-07T00:00:00.000Z",
        "{Date}2020-01-02T03:04Z",
        "{Date}2020-01-01T00:00:00Z",
        "{Date}2020-01-01T00:00:00.000+0100",
        "{Date}2020-01-01T00:00:00.000+24:00",
        "{Date}2020-01-01T00:00:00.000+\u06601:00",
        "{Date}2020-02-30T00:00:00.000Z",
        "{Date}2020-13-01T00:00:00.000Z",
        "{Date}2020-01-01T24:00:00.000Z",
        "{Date}2020-01-01T00:00:60.000Z",
        "{Date}2020-01-01T-1:00:00.000Z",
        "{Date}202\U0001d7d8-01-01T00:00:00.000Z",
        "{Date}12020-01-01T00:00:00.000Z",
        "{Long}\U0001d7d9",
        "{Long}\u0669223372036854775808",
        "{Decimal} 1",
        "{Decimal}.",
        "{Decimal}1e2147483648",
        "{Decimal}1.5e-2147483647",
        "{Decimal}\U0001d7d9",
        "{Double}\u0663",
        "{Double}",
        "{Double}0x1",
        "{Double}1_0",
        "{Decimal}x",
        "{Decimal}1f",
        "{Name}",
        "{Name}..",
        "{Name}a/b",
        "{Name}jcr:",
        "{Path}/a//b",
        "{Reference}/a/b",
        "{WeakReference}",
    ],
)
def test_a_value_that_is_not_of_its_type_is_a_string(text: str) -> None:
    """As in FileVault, which does so for a value that stands alone."""
    assert parse_values(text)[:3] == (PropertyType.STRING, False, (text.partition("}")[2],))


@pytest.mark.parametrize(
    ("values", "is_multiple", "text"),
    [
        (("hello, world",), False, "hello, world"),
        (("hello, world",), True, "[hello\\, world]"),
        (("[hello]",), False, "\\[hello]"),
        (("[hello]",), True, "[[hello]]"),
        (("{hello}",), False, "\\{hello}"),
        (("{hello}",), True, "[{hello}]"),
        (("hello\x0fworld",), False, "hello\\u000fworld"),
        (("hello\\world",), True, "[hello\\\\world]"),
        (("",), True, "[\\0]"),
        (("",), False, ""),
        ((), True, "[]"),
    ],
)
def test_values_as_filevault_writes_them(values: tuple[str, ...], is_multiple: bool, text: str) -> None:
    assert format_values(STRING, values, is_multiple=is_multiple) == text


def test_references_are_a_type_of_their_own() -> None:
    text = format_values(BINARY, ("sha256:00:1", ""), is_multiple=True, is_reference=True)
    assert text == "{BinaryRef}[sha256:00:1,]"
    assert parse_values(text) == (BINARY, True, ("sha256:00:1", ""), True)


@given(
    data=st.data(), is_multiple=st.booleans(), kind=st.sampled_from([item for item in PropertyType if item != BINARY])
)
def test_every_value_comes_back(data: st.DataObject, is_multiple: bool, kind: PropertyType) -> None:
    low, high = (0, 4) if is_multiple else (1, 1)
    values = data.draw(st.lists(trees.values(kind, TEXTS), min_size=low, max_size=high))
    text = format_values(kind, values, is_multiple=is_multiple)
    assert parse_values(text) == (kind, is_multiple, tuple(values), False)


@given(text=TEXTS)
def test_any_text_is_understood_or_refused(text: str) -> None:
    try:
        parsed = parse_values(text)
    except ValueRefusedError:
        return
    again = format_values(parsed.type, parsed.values, is_multiple=parsed.is_multiple, is_reference=parsed.is_reference)
    assert parse_values(again) == parsed
