r"""`filter.xml`: what a package owns, both ways.

Source: filter.md, importmode.md and workspacefilter-1.0.xsd of FileVault. `update`, deprecated there, becomes
`update_properties`, as FileVault imports it for all nodes but users and groups. A set of `type="cleanup"` is imported
like any other; FileVault's validator accepts that it has no content. A root with the single include `\Q<root>\E`, as
Sling writes for a path that is not deep, is a shallow set of ours.

https://github.com/apache/jackrabbit-filevault/blob/jackrabbit-filevault-4.1.4/vault-core/src/main/java/org/apache/jackrabbit/vault/fs/config/DefaultWorkspaceFilter.java
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from mailboat.errors import LimitExceededError, PackageCorruptError, PathRefusedError, UntrustedInputError
from mailboat.model.filters import MAX_RULES, FilterRule, FilterSet, ImportMode, WorkspaceFilter
from mailboat.model.paths import ROOT, NodePath, parse_path
from mailboat.packages.filevault.java_values import read_double
from mailboat.packages.filevault.markup import XML_HEAD, attribute_pairs, escape, parse_small
from mailboat.packages.filevault.patterns import compile_java, java_form, quote_java

FILTER_XML: Final = "META-INF/vault/filter.xml"
MAX_FILTER_BYTES: Final = 4 * 1024 * 1024

_MODES: Final[Mapping[str, ImportMode]] = MappingProxyType(
    {mode.value: mode for mode in ImportMode} | {"update": ImportMode.UPDATE_PROPERTIES}
)
_CLEANUP: Final = "cleanup"
_VERSION: Final = 1.0
_NAME_ROOTS: Final = 'name each root of the package in its filter.xml, as <filter root="/content/site"/>'
_HEAD: Final = f'{XML_HEAD}<workspaceFilter version="1.0">\n'
_ROOT: Final = '    <filter root="'
_TAIL: Final = "</workspaceFilter>\n"
# The filter of most packages of ours: one root, nothing to unescape, nothing that XML would have to understand.
_PLAIN: Final = re.compile(
    (re.escape(_HEAD + _ROOT) + r'(/[A-Za-z0-9_./ -]*[A-Za-z0-9_.-])"/>\n' + re.escape(_TAIL) + r"\Z").encode()
)


def parse_filter(content: bytes) -> WorkspaceFilter:
    """Understand `filter.xml`.

    Raises:
        PackageCorruptError, LimitExceededError, PathRefusedError: With the root or the expression.
    """
    plain = _PLAIN.match(content)
    if plain is not None:
        return WorkspaceFilter((FilterSet(parse_path(plain[1].decode())),))
    reading = _Reading()
    parse_small(content, FILTER_XML, reading.start, MAX_FILTER_BYTES)
    if not reading.is_filter:
        raise PackageCorruptError("the filter has no workspaceFilter element", entry=FILTER_XML)
    sets = [filter_set for filter_set in reading.sets if not filter_set.is_ignored]
    if not sets:
        raise PackageCorruptError(
            "the filter names no root, or none that is a path; FileVault would import missing nodes at most",
            next_step=_NAME_ROOTS,
            entry=FILTER_XML,
        )
    return WorkspaceFilter(tuple(filter_set.build() for filter_set in sets))


def format_filter(workspace: WorkspaceFilter) -> str:
    """Write `filter.xml`. Raises: PackageCorruptError for an expression that has no equal in Java."""
    lines = [_HEAD]
    for filter_set in workspace.sets:
        mode = "" if filter_set.mode is ImportMode.REPLACE else f' mode="{filter_set.mode.value}"'
        rules = _format_rules(filter_set)
        kind = f' type="{_CLEANUP}"' if filter_set.is_cleanup else ""
        end = f">\n{rules}    </filter>\n" if rules else "/>\n"
        lines.append(f'{_ROOT}{escape(filter_set.root)}"{mode}{kind}{end}')
    lines.append(_TAIL)
    return "".join(lines)


def _format_rules(one: FilterSet) -> str:
    if one.is_shallow:
        return f'        <include pattern="{escape(quote_java(one.root))}"/>\n'
    lines = [_format_rule(rule, "") for rule in one.rules]
    lines += [_format_rule(rule, ' matchProperties="true"') for rule in one.property_rules]
    return "".join(lines)


def _format_rule(rule: FilterRule, suffix: str) -> str:
    kind = "include" if rule.is_include else "exclude"
    return f'        <{kind} pattern="{escape(java_form(rule.pattern))}"{suffix}/>\n'


class _SetReading:
    """One `filter` element while its rules come."""

    def __init__(self, root: NodePath | None, mode: ImportMode, *, is_cleanup: bool) -> None:
        self.root = root or ROOT
        self.is_ignored = root is None
        self.mode = mode
        self.is_cleanup = is_cleanup
        self.is_shallow = False
        self.rules: list[FilterRule] = []
        self.property_rules: list[FilterRule] = []

    def add(self, pattern: str, *, is_include: bool, matches_properties: bool) -> None:
        try:
            compiled = compile_java(pattern)
        except UntrustedInputError as error:
            error.with_facts(entry=FILTER_XML, root=self.root)
            raise
        rule = FilterRule(is_include, compiled, matches_properties)
        self.is_shallow = not self.rules and is_include and not matches_properties and pattern == quote_java(self.root)
        (self.property_rules if matches_properties else self.rules).append(rule)

    def build(self) -> FilterSet:
        if self.is_shallow and len(self.rules) == 1 and not self.property_rules:
            return FilterSet(self.root, is_shallow=True, mode=self.mode, is_cleanup=self.is_cleanup)
        rules = tuple(self.rules), tuple(self.property_rules)
        return FilterSet(self.root, False, *rules, self.mode, self.is_cleanup)


def _parse_root(text: str) -> NodePath | None:
    """A root without a slash at its end; None for one at which FileVault has nothing. Raises: PathRefusedError."""
    shorter = text.removesuffix("/")
    if not text.startswith("/") or "//" in shorter or shorter == ROOT:
        return None
    return parse_path(shorter or ROOT)


class _Reading:
    """The state of one parse."""

    def __init__(self) -> None:
        self.sets: list[_SetReading] = []
        self.is_filter = False
        self._rule_count = 0

    def start(self, name: str, attributes: list[str]) -> None:
        pairs = attribute_pairs(attributes)
        if name == "workspaceFilter" and not self.is_filter:
            self.is_filter = True
            version = pairs.get("version") or "1.0"
            number = read_double(version)  # as `1` or `1.0`
            if number is None or float(number) > _VERSION:
                raise self._refused(f"version {version[:20]!r} is not known; known is up to {_VERSION}")
        elif name == "filter" and self.is_filter:
            self._start_set(pairs)
        elif name in ("include", "exclude") and self.sets:
            self._start_rule(name == "include", pairs)
        else:
            raise self._refused(f"the element {name[:40]!r} is not known there")

    def _start_set(self, pairs: dict[str, str]) -> None:
        named, root = pairs.get("mode") or "replace", pairs.get("root") or ROOT
        mode = _MODES.get(named.lower())
        if mode is None:
            raise self._refused(f"mode {named[:40]!r} is not known; known are {', '.join(_MODES)}")
        self._count()
        try:
            path = _parse_root(root)
        except PathRefusedError as error:
            error.with_facts(entry=FILTER_XML)
            raise
        self.sets.append(_SetReading(path, mode, is_cleanup=pairs.get("type") == _CLEANUP))

    def _start_rule(self, is_include: bool, pairs: dict[str, str]) -> None:  # noqa: FBT001  # one caller, above
        if "pattern" not in pairs:
            raise self._refused("a rule has no pattern")
        self._count()
        matches_properties = pairs.get("matchProperties", "false").lower() == "true"
        self.sets[-1].add(pairs["pattern"], is_include=is_include, matches_properties=matches_properties)

    def _count(self) -> None:
        self._rule_count += 1
        if self._rule_count > MAX_RULES:
            raise LimitExceededError("the filter has too many roots and rules", entry=FILTER_XML, limit=MAX_RULES)

    def _refused(self, reason: str) -> PackageCorruptError:
        return PackageCorruptError(f"the filter can't be understood: {reason}", entry=FILTER_XML)
