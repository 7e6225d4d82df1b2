"""Container images of one layer, written without a container engine: an OCI archive of files and folders.

A program is taken with the shared libraries that it needs, as `ldd` lists them. Times and owners are fixed, so the same
files give the same image. The archives are for `kind load image-archive` and for the node image.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import subprocess
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_LIBRARY = re.compile(r"(?:=> )?(/\S+) \(0x")
_ROOT_FOLDERS = {
    "/tmp": 0o1777,
    "/etc": 0o755,
    "/proc": 0o755,
    "/sys": 0o755,
    "/dev": 0o755,
    "/var": 0o755,
    "/run": 0o755,
}
_USERS = "root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/tmp:/sbin/nologin\n"
_TEXTS = {
    "/etc/passwd": _USERS,
    "/etc/group": "root:x:0:\nnonroot:x:65532:\n",
    "/etc/nsswitch.conf": "hosts: files dns\n",
}


@dataclass
class Image:
    """An image to write.

    Attributes:
        name: With its tag.
        files: Where each file or folder of this machine goes, by its place in the image.
        entrypoint: What it runs.
        user: As whom.
        environment: `NAME=value`.
        is_static: Its programs need no shared libraries.
    """

    name: str
    files: dict[str, Path]
    entrypoint: tuple[str, ...] = ()
    user: str = "65532:65532"
    environment: tuple[str, ...] = ()
    is_static: bool = False

    def write(self, into: Path) -> None:
        """Write the archive."""
        layer = _layer(self._all_files())
        digest = f"sha256:{hashlib.sha256(layer).hexdigest()}"
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": {
                "Env": ["PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", *self.environment],
                "User": self.user,
                "Entrypoint": list(self.entrypoint),
                "WorkingDir": "/",
            },
            "rootfs": {"type": "layers", "diff_ids": [digest]},
        }
        _write_archive(into, self.name, json.dumps(config).encode(), layer)

    def _all_files(self) -> dict[str, Path]:
        files: dict[str, Path] = {}
        for place, source in self.files.items():
            if source.is_dir():
                files.update({f"{place}/{path.relative_to(source)}": path for path in sorted(source.rglob("*"))})
            else:
                files[place] = source
        if not self.is_static:
            for library in _libraries(files.values()):
                files.setdefault(library, Path(os.path.realpath(library)))
        return files


def read_image(archive: Path) -> tuple[bytes, bytes]:
    """Configuration and layer of an archive that `Image.write` wrote."""
    with tarfile.open(archive) as opened:

        def blob(digest: str) -> bytes:
            found = opened.extractfile(f"blobs/sha256/{digest.removeprefix('sha256:')}")
            return b"" if found is None else found.read()

        index_file = opened.extractfile("index.json")
        index = json.loads(b"{}" if index_file is None else index_file.read())
        manifest = json.loads(blob(index["manifests"][0]["digest"]))
        return blob(manifest["config"]["digest"]), blob(manifest["layers"][0]["digest"])


def add_bytes(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    """Add a file to a tar archive, with fixed times and owners."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))


def _libraries(files: Iterable[Path]) -> set[str]:
    programs = [str(file) for file in files if _is_program(file)]
    found: set[str] = set()
    for start in range(0, len(programs), 200):
        listed = subprocess.run(["ldd", *programs[start : start + 200]], capture_output=True, text=True, check=False)
        found.update(_LIBRARY.findall(listed.stdout))
    return found


def _is_program(file: Path) -> bool:
    if not file.is_file() or file.is_symlink():
        return False
    with file.open("rb") as stream:
        return stream.read(4) == b"\x7fELF"


def _layer(files: dict[str, Path]) -> bytes:
    written: set[str] = set()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as layer:
        for folder, mode in _ROOT_FOLDERS.items():
            _add_folder(layer, folder, written, mode)
        for place, text in _TEXTS.items():
            if place not in files:
                add_bytes(layer, place.lstrip("/"), text.encode())
        for place in sorted(files):
            _add_file(layer, place, files[place], written)
    return buffer.getvalue()


def _add_folder(layer: tarfile.TarFile, folder: str, written: set[str], mode: int = 0o755) -> None:
    if folder in {"", "/"} or folder in written:
        return
    _add_folder(layer, os.path.dirname(folder), written)  # noqa: PTH120  # a place in the image, not a path here
    written.add(folder)
    entry = tarfile.TarInfo(folder.lstrip("/"))
    entry.type, entry.mode = tarfile.DIRTYPE, mode
    layer.addfile(entry)


def _add_file(layer: tarfile.TarFile, place: str, source: Path, written: set[str]) -> None:
    if source.is_dir() and not source.is_symlink():
        _add_folder(layer, place, written)
        return
    _add_folder(layer, os.path.dirname(place), written)  # noqa: PTH120  # as above
    entry = layer.gettarinfo(str(source), place.lstrip("/"))
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    if entry.issym():
        layer.addfile(entry)
        return
    entry.type, entry.size = tarfile.REGTYPE, source.stat().st_size  # a second name of a file is a file of its own
    entry.mode |= 0o444
    with source.open("rb") as stream:
        layer.addfile(entry, stream)


def _write_archive(into: Path, name: str, config: bytes, layer: bytes) -> None:
    media = "application/vnd.oci.image"
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": f"{media}.manifest.v1+json",
            "config": _descriptor(f"{media}.config.v1+json", config),
            "layers": [_descriptor(f"{media}.layer.v1.tar", layer)],
        }
    ).encode()
    entry = {
        **_descriptor(f"{media}.manifest.v1+json", manifest),
        "platform": {"os": "linux", "architecture": "amd64"},
        "annotations": {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rpartition(":")[2]},
    }
    with tarfile.open(into, "w") as archive:
        add_bytes(archive, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        add_bytes(archive, "index.json", json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode())
        for blob in (manifest, config, layer):
            add_bytes(archive, f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}", blob)


def _descriptor(media_type: str, content: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "digest": f"sha256:{hashlib.sha256(content).hexdigest()}", "size": len(content)}
