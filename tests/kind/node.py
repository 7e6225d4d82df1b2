"""The node image of kind, made of Debian packages and of programs that are built here, where none can be pulled.

`kind build node-image` takes a base image and a release archive. The base is a small Debian with what kind's own base
image has; the archive holds the four component images under every tag that kubeadm and kind ask for, so that neither
ever tries to pull one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from builds import (
    COREDNS,
    KIND,
    KUBEBOX,
    KUBERNETES,
    PAUSE,
    STORAGE,
    build,
    cache_folder,
    digest_of,
    locked,
    module_folder,
    say,
)
from engine import Engine
from oci import Image, add_bytes, read_image

HERE = Path(__file__).resolve().parent
_DEBIAN = (
    "systemd,conntrack,iptables,nftables,iproute2,ethtool,util-linux,mount,kmod,libseccomp2,bash,jq,procps,containerd,"
    "runc,containernetworking-plugins,e2fsprogs,hostname"
)
_FOLDERS = (
    "kind/bin",
    "opt/cni/bin",
    "etc/kubernetes/manifests",
    "etc/systemd/system/kubelet.service.d",
    "etc/containerd",
    "etc/cni/net.d",
    "usr/local/bin",
)
_KUBE_LINKS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubectl")
_TABLES = "/usr/sbin/xtables-nft-multi"
_TABLE_LINKS = tuple(
    f"{family}{ending}" for family in ("iptables", "ip6tables") for ending in ("", "-save", "-restore")
)
_REGISTRY = "registry.k8s.io"
_PROGRAMS = (COREDNS, KIND, KUBEBOX, PAUSE, STORAGE)


@dataclass(frozen=True)
class Component:
    """An image of the release: the archive that kind reads it from, the image, and the tags that are asked for."""

    archive: str
    image: Image
    tags: tuple[str, ...]


def node_image(engine: Engine) -> str:
    """The name of the node image in the engine, made unless it is there. Takes two minutes from built programs."""
    modules = [program.folder for program in _PROGRAMS]
    sources = [*modules, HERE / "node.py", HERE / "oci.py", HERE / "inside-the-node.sh"]
    name = f"mailboat/node:{KUBERNETES}-{digest_of(*sources)}"
    with locked(cache_folder() / "node"):
        if not engine.has_image(name):
            with tempfile.TemporaryDirectory(dir=cache_folder()) as folder:
                _make(engine, name, Path(folder))
    return name


def _make(engine: Engine, name: str, work: Path) -> None:
    base = "mailboat/node-base:local"
    root = _root_files(work / "root")
    say("importing the node's base image")
    entrypoint = 'ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]'
    engine.import_image(root, base, "ENV container=docker", entrypoint)
    say("writing the component images")
    archive = _release(work)
    say("building the node image")
    command = [build(KIND), "build", "node-image", "--type", "file", "--base-image", base, "--image", name, archive]
    subprocess.run(command, env={**os.environ, **engine.environment}, check=True, stdout=sys.stderr)


def _root_files(root: Path) -> Path:
    """The root file system of a node."""
    say("making a small Debian for the node")
    options = ["--variant=minbase", f"--include={_DEBIAN}", "bookworm", str(root)]
    subprocess.run(["debootstrap", *options], check=True, stdout=subprocess.DEVNULL)
    for folder in _FOLDERS:
        (root / folder).mkdir(parents=True, exist_ok=True)
    _copy_kind_files(module_folder(KIND, "sigs.k8s.io/kind") / "images/base/files", root)
    shutil.copy(build(KUBEBOX), root / "usr/local/bin/kubebox")
    script = (HERE / "inside-the-node.sh").read_bytes()
    subprocess.run(["chroot", str(root), "/bin/bash", "-s"], input=script, check=True)
    return root


def _copy_kind_files(files: Path, root: Path) -> None:
    """What kind adds to a Debian, from its own module."""
    for file in sorted(path for path in files.rglob("*") if path.is_file()):
        place = root / file.relative_to(files)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, place)
        is_program = place.parent.name == "bin"
        place.chmod(0o755 if is_program else 0o644)


def _release(work: Path) -> Path:
    """The release archive that `kind build node-image --type file` takes."""
    out = work / "release.tar.gz"
    with tarfile.open(out, "w:gz", compresslevel=1) as release:
        add_bytes(release, "kubernetes/version", KUBERNETES.encode())
        for name in ("kubeadm", "kubelet", "kubectl"):
            script = f'#!/bin/sh\nexec /usr/local/bin/kubebox {name} "$@"\n'
            add_bytes(release, f"kubernetes/server/bin/{name}", script.encode(), 0o755)
        for component in _components(work):
            oci = work / f"{component.archive}.oci"
            component.image.write(oci)
            add_bytes(release, f"kubernetes/server/bin/{component.archive}.tar", _docker_archive(oci, component.tags))
    return out


def _components(work: Path) -> list[Component]:
    """kind reads exactly these four archives; what is in which does not matter, as long as every tag is there."""
    links = work / "links"
    links.mkdir()
    for name in _KUBE_LINKS:
        (links / name).symlink_to("/usr/local/bin/kubebox")
    for name in _TABLE_LINKS:
        (links / name).symlink_to(_TABLES)
    (extensions,) = Path("/usr/lib").glob("*-linux-gnu/xtables")
    kube = Image(
        "local/kube:1",
        {
            "/usr/local/bin/kubebox": build(KUBEBOX),
            "/usr/local/bin": links,
            _TABLES: Path(_TABLES),
            str(extensions): extensions,
            "/usr/sbin/conntrack": Path("/usr/sbin/conntrack"),
        },
        user="0:0",
    )
    dns = Image("local/dns:1", {"/coredns": build(COREDNS)}, ("/coredns",), "0:0", is_static=True)
    storage = Image(
        "local/storage:1",
        {
            "/usr/local/bin/local-path-provisioner": build(STORAGE),
            "/bin/sh": Path("/bin/dash"),
            "/bin/mkdir": Path("/bin/mkdir"),
            "/bin/rm": Path("/bin/rm"),
        },
        user="0:0",
    )
    pause = Image("local/pause:1", {"/pause": build(PAUSE)}, ("/pause",), is_static=True)
    kube_names = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy")
    kube_tags = (*(f"{_REGISTRY}/{name}:{KUBERNETES}" for name in kube_names), f"{_REGISTRY}/etcd:3.6.8-0")
    helper = "docker.io/kindest/local-path-helper:v20260131-7181c60a"
    return [
        Component("kube-apiserver", kube, kube_tags),
        Component("kube-controller-manager", dns, (f"{_REGISTRY}/coredns/coredns:v1.14.2",)),
        Component("kube-scheduler", storage, ("docker.io/kindest/local-path-provisioner:v20260820-69b56db7", helper)),
        Component(
            "kube-proxy",
            pause,
            (f"{_REGISTRY}/pause:3.10", f"{_REGISTRY}/pause:3.10.2", "docker.io/kindest/kindnetd:v20260820-69b56db7"),
        ),
    ]


def _docker_archive(oci: Path, tags: tuple[str, ...]) -> bytes:
    config, layer = read_image(oci)
    buffer = BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        manifest = [{"Config": "config.json", "RepoTags": list(tags), "Layers": ["layer/layer.tar"]}]
        add_bytes(archive, "manifest.json", json.dumps(manifest).encode())
        add_bytes(archive, "config.json", config)
        add_bytes(archive, "layer/layer.tar", layer)
    return buffer.getvalue()
