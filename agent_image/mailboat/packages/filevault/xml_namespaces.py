"""Prefixes and namespaces: the model's names have prefixes, XML and JCR have namespaces.

The prefixes below are those of JCR, Jackrabbit, Sling, AEM and the metadata of images and documents, so that what we
write means there what it means here. Any other prefix needs the namespace that the source, the configuration or the
package's properties name: a prefix without one is refused. Reading takes the prefix that a document uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from mailboat.errors import PackageCorruptError
from mailboat.packages.filevault.attributes import AttributePlan, plan_attributes
from mailboat.packages.filevault.names import decode_xml_name

KNOWN: Final[Mapping[str, str]] = MappingProxyType(
    {
        "jcr": "http://www.jcp.org/jcr/1.0",
        "nt": "http://www.jcp.org/jcr/nt/1.0",
        "mix": "http://www.jcp.org/jcr/mix/1.0",
        "sv": "http://www.jcp.org/jcr/sv/1.0",
        "xml": "http://www.w3.org/XML/1998/namespace",
        "rep": "internal",
        "oak": "http://jackrabbit.apache.org/oak/ns/1.0",
        "sling": "http://sling.apache.org/jcr/sling/1.0",
        "slingevent": "http://sling.apache.org/jcr/event/1.0",
        "vlt": "http://www.day.com/jcr/vault/1.0",
        "crx": "http://www.day.com/crx/1.0",
        "cq": "http://www.day.com/jcr/cq/1.0",
        "dam": "http://www.day.com/dam/1.0",
        "granite": "http://www.adobe.com/jcr/granite/1.0",
        "social": "http://www.adobe.com/social/1.0",
        "workflow": "http://www.day.com/jcr/workflow/1.0",
        "mcm": "http://www.day.com/mcm/1.0",
        "wcm": "http://www.day.com/wcm/1.0",
        "dc": "http://purl.org/dc/elements/1.1/",
        "xmp": "http://ns.adobe.com/xap/1.0/",
        "xmpMM": "http://ns.adobe.com/xap/1.0/mm/",
        "xmpRights": "http://ns.adobe.com/xap/1.0/rights/",
        "tiff": "http://ns.adobe.com/tiff/1.0/",
        "exif": "http://ns.adobe.com/exif/1.0/",
        "photoshop": "http://ns.adobe.com/photoshop/1.0/",
        "pdf": "http://ns.adobe.com/pdf/1.3/",
        "fd": "http://www.adobe.com/aemfd/fd/1.0",
        "xsi": "http://www.w3.org/2001/XMLSchema-instance",
        "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
        "stEvt": "http://ns.adobe.com/xap/1.0/sType/ResourceEvent#",
        "stRef": "http://ns.adobe.com/xap/1.0/sType/ResourceRef#",
        "stDim": "http://ns.adobe.com/xap/1.0/sType/Dimensions#",
        "stFnt": "http://ns.adobe.com/xap/1.0/sType/Font#",
        "stVer": "http://ns.adobe.com/xap/1.0/sType/Version#",
        "stJob": "http://ns.adobe.com/xap/1.0/sType/Job#",
        "stMfs": "http://ns.adobe.com/xap/1.0/sType/ManifestItem#",
        "xmpBJ": "http://ns.adobe.com/xap/1.0/bj/",
        "xmpDM": "http://ns.adobe.com/xmp/1.0/DynamicMedia/",
        "xmpG": "http://ns.adobe.com/xap/1.0/g/",
        "xmpNote": "http://ns.adobe.com/xmp/note/",
        "xmpTPg": "http://ns.adobe.com/xap/1.0/t/pg/",
        "crs": "http://ns.adobe.com/camera-raw-settings/1.0/",
        "exifEX": "http://cipa.jp/exif/1.0/",
        "psAux": "http://ns.adobe.com/exif/1.0/aux/",
        "illustrator": "http://ns.adobe.com/illustrator/1.0/",
        "lr": "http://ns.adobe.com/lightroom/1.0/",
        "pdfx": "http://ns.adobe.com/pdfx/1.3/",
        "Iptc4xmpCore": "http://iptc.org/std/Iptc4xmpCore/1.0/xmlns/",
        "Iptc4xmpExt": "http://iptc.org/std/Iptc4xmpExt/2008-02-29/",
        "plus": "http://ns.useplus.org/ldf/xmp/1.0/",
    }
)
MAX_NAMESPACES_OF_PREFIX: Final = 100
MAX_CACHED_NAMES: Final = 20_000
MAX_CACHED_PLANS: Final = 2_000
MAX_CACHED_WIDTH: Final = 64
MAX_CACHED_LENGTH: Final = 4096
"""Of a name with its namespace. Longer ones are mostly refused, and would stay in memory."""
MAX_INTERNED_BYTES: Final = 8 * 1024 * 1024
"""Of the documents whose names are kept for the next one."""


class Namespaces:
    """The prefixes of one codec, and the names that were resolved with them (a bounded cache)."""

    def __init__(self, more: Mapping[str, str] | None = None) -> None:
        self.configured = more or {}
        self.by_prefix: Final[Mapping[str, str]] = {**KNOWN, **self.configured}
        self._by_namespace = {uri: prefix for prefix, uri in self.by_prefix.items()}
        self.names: dict[str, str] = {}
        self.plans: dict[tuple[str, ...], AttributePlan] = {}
        self.interned: dict[str, str] = {}
        self._interned_bytes = 0

    def is_known(self, uri: str) -> bool:
        """Whether a namespace has a prefix in all packages."""
        return uri in self._by_namespace

    def bound(self, prefix: str, uri: str, seen: dict[str, str], entry: str) -> str:
        """Take note of a declaration. Returns the prefix that names of this namespace get.

        A second namespace of a prefix gets the next free one (`acme0`), as where FileVault registers it.

        Raises: PackageCorruptError.
        """
        known = self._by_namespace.get(uri)
        if known is not None:
            return known
        if (self.by_prefix.get(prefix) or seen.setdefault(prefix, uri)) == uri:
            return prefix
        if not prefix:
            raise PackageCorruptError("names without prefix have two namespaces", entry=entry)
        for number in range(MAX_NAMESPACES_OF_PREFIX):
            free = f"{prefix}{number}"
            if free not in self.by_prefix and seen.setdefault(free, uri) == uri:
                return free
        raise PackageCorruptError(
            f"the prefix {prefix!r} has more than {MAX_NAMESPACES_OF_PREFIX} namespaces", entry=entry
        )

    def resolve(self, expanded: str, entry: str) -> str:
        """The name of expat's `namespace local prefix`. Raises: PackageCorruptError."""
        name = self.names.get(expanded)
        if name is None:
            name = self._resolved(expanded, entry)
            if len(expanded) > MAX_CACHED_LENGTH:
                return name
            if len(self.names) >= MAX_CACHED_NAMES:
                self.names.clear()
            self.names[expanded] = name
        return name

    def plan(self, expanded: tuple[str, ...], entry: str) -> AttributePlan:
        """What attributes with these names mean. Raises: PackageCorruptError."""
        found = self.plans.get(expanded)
        if found is None:
            try:
                found = plan_attributes(tuple([self.resolve(name, entry) for name in expanded]))
            except PackageCorruptError as error:
                error.where["entry"] = entry
                raise
            if len(self.plans) >= MAX_CACHED_PLANS:
                self.plans.clear()
            if len(expanded) <= MAX_CACHED_WIDTH:
                self.plans[expanded] = found
        return found

    def trim(self, length_bytes: int) -> None:
        """Keep the interned names bounded: called before a document of that length."""
        self._interned_bytes += length_bytes
        if self._interned_bytes > MAX_INTERNED_BYTES or len(self.interned) > MAX_CACHED_NAMES:
            self.interned.clear()
            self._interned_bytes = length_bytes

    def _resolved(self, expanded: str, entry: str) -> str:
        parts = expanded.split(" ")
        local = parts[min(1, len(parts) - 1)]
        try:
            decoded = decode_xml_name(local)
        except ValueError as error:
            raise PackageCorruptError(f"{local[:80]!r} is not a name", entry=entry) from error
        if len(parts) == 1:
            return decoded
        prefix = self._by_namespace.get(parts[0]) or "".join(parts[2:])
        if not prefix:
            raise PackageCorruptError(f"{local[:80]!r} is in a namespace without prefix", entry=entry)
        return f"{prefix}:{decoded}"
