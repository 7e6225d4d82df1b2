"""The closing packages of a build: they remove what was published of the source before and is there no more."""

from __future__ import annotations

import hashlib
import io

from mailboat.bulk.cutter import BinKind
from mailboat.bulk.records import BuiltBin
from mailboat.packages.port import PackageCodec, PackageContents
from mailboat.publisher.changes import ChangeGroup


def build_closing(group: ChangeGroup, codec: PackageCodec) -> BuiltBin:
    """The package that removes what a group of changes removes: it owns the paths and carries nothing."""
    into = io.BytesIO()
    summary = codec.write(PackageContents(group.filter, ()), into)
    return BuiltBin(
        BinKind.CLOSING,
        group.roots,
        hashlib.sha256(b"closing\0" + summary.package_digest).digest(),
        group.deep_roots,
        0,
        summary.length_bytes,
        summary.package_digest,
        summary.tree_digest,
        into.getvalue(),
    )
