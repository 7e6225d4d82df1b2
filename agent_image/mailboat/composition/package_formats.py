"""The package formats of a configuration.

A codec is imported when the first package of its format is met: a subscriber of tree packages never loads the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mailboat.config.document import Config, PackageType
from mailboat.packages.codec_registry import PackageRegistry
from mailboat.packages.port import PackageCodec


def codec_names(config: Config) -> Mapping[str, PackageType]:
    """What messages may call the package formats; what we call them counts in any case."""
    called = (config.publisher.filevault_name, *config.subscriber.filevault_names)
    return dict.fromkeys(called, PackageType.FILEVAULT) | {str(kind): kind for kind in PackageType}


def namespaces_of(config: Config) -> Mapping[str, str]:
    """The namespaces that the configuration names, by prefix."""
    return {namespace.prefix: namespace.uri for namespace in config.publisher.namespaces}


class CodecsOnDemand(Mapping[str, PackageCodec]):
    """All formats, imported one by one: a subscriber that meets tree packages only never loads the other one."""

    def __init__(self, names: Mapping[str, PackageType], namespaces: Mapping[str, str] | None = None) -> None:
        """Load nothing yet.

        Args:
            names: What messages may call the formats.
            namespaces: Of prefixes in packages, beyond those that are generally known.
        """
        self._names = names
        self._namespaces = namespaces or {}
        self._loaded: dict[str, PackageCodec] = {}

    def __getitem__(self, package_type: str) -> PackageCodec:
        if package_type not in self._loaded:
            self._loaded[package_type] = _load_codec(self._names[package_type], self._namespaces)
        return self._loaded[package_type]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _load_codec(package_type: PackageType, namespaces: Mapping[str, str]) -> PackageCodec:
    if package_type is PackageType.TREE:
        from mailboat.packages.tree import TreeCodec

        return TreeCodec(namespaces)
    from mailboat.packages.filevault.codec import FilevaultCodec, FilevaultSettings

    return FilevaultCodec(FilevaultSettings(namespaces=namespaces))


def package_registry(namespaces: Mapping[str, str] | None = None) -> PackageRegistry:
    """The package formats that this version reads and writes; `namespaces` as in `CodecsOnDemand`."""
    return PackageRegistry(_load_codec(kind, namespaces or {}) for kind in PackageType)
