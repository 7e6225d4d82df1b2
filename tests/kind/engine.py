"""Container engines: one that runs already and can pull, or else one that is started for the tests.

The one that is started is Debian's docker.io in namespaces of its own, reached through one pair of links. Ending its
one process ends the engine, its containers, mounts and firewall rules; the host's own rules stay as they were. Its
network has no way out, which is meant: a pull fails at once instead of waiting for a name server. Pods reach servers on
the host at 10.77.1.1; the host reaches the cluster at 10.77.1.2.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from builds import cache_folder, say

HOST_ADDRESS = "10.77.1.1"
ENGINE_ADDRESS = "10.77.1.2"
PACKAGES = {
    "dockerd": "docker.io",
    "debootstrap": "debootstrap",
    "nft": "nftables",
    "xtables-nft-multi": "iptables",
    "conntrack": "conntrack",
}

_HOST_LINK, _ENGINE_LINK = "mbkind-host", "mbkind-in"
_CONTROL_GROUP = "mailboat-kind"
_CONTAINER_NETWORK = "10.78.0.0/16"
_SYSCTLS = ("vm.overcommit_memory", "kernel.panic", "kernel.panic_on_oops")  # a node's kubelet sets these for the host
_START_SECONDS = 30.0
_STOP_SECONDS = 20.0
_ANSWER_SECONDS = 10.0
_REGISTRY_SECONDS = 20.0
_PULL_SECONDS = 900.0
_TIMED_OUT = 124
RUNC = Path(__file__).resolve().with_name("runc-without-sys-resource")


class Engine:
    """An engine that runs already."""

    can_pull = True

    @property
    def environment(self) -> dict[str, str]:
        """What its clients need."""
        return {}

    @property
    def host_address(self) -> str:
        """Where pods reach servers of this machine, once the cluster runs: the gateway of kind's network."""
        gateways = "{{range .IPAM.Config}}{{.Gateway}} {{end}}"
        found = self._docker("network", "inspect", "kind", f"--format={gateways}").stdout.decode().split()
        return next((item for item in found if ":" not in item), "")

    def is_ready(self) -> bool:
        """Whether it answers."""
        return shutil.which("docker") is not None and self._docker("version", seconds=_ANSWER_SECONDS).returncode == 0

    def can_reach(self, name: str) -> bool:
        """Whether the registry of an image answers within a time limit."""
        return self._docker("manifest", "inspect", name, seconds=_REGISTRY_SECONDS).returncode == 0

    def has_image(self, name: str) -> bool:
        """Whether it holds the image."""
        return self._docker("image", "inspect", name).returncode == 0

    def image_bytes(self, name: str) -> int:
        """What an image takes, unpacked."""
        return int(self._docker("image", "inspect", "--format={{.Size}}", name).stdout)

    def pull(self, name: str) -> bool:
        """Whether it holds the image now, from a registry if need be."""
        return self.has_image(name) or self._docker("pull", "--quiet", name, seconds=_PULL_SECONDS).returncode == 0

    def import_image(self, root: Path, name: str, *changes: str) -> None:
        """Make an image of a root file system, with lines of a Dockerfile as changes."""
        options = [word for change in changes for word in ("--change", change)]
        with subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE) as packed:
            command = ["docker", "import", *options, "-", name]
            environment = {**os.environ, **self.environment}
            subprocess.run(command, stdin=packed.stdout, env=environment, check=True, stdout=subprocess.DEVNULL)

    def up(self) -> None:
        """Nothing: it runs."""

    def down(self) -> None:
        """Nothing: it is not ours to stop."""

    def leftovers(self) -> list[str]:
        """What of it is still on the machine: nothing of it was ours."""
        return []

    def _docker(self, *arguments: str, seconds: float | None = None) -> subprocess.CompletedProcess[bytes]:
        command, environment = ["docker", *arguments], {**os.environ, **self.environment}
        try:
            return subprocess.run(command, env=environment, capture_output=True, check=False, timeout=seconds)
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(command, _TIMED_OUT, b"", b"no answer in time")


class OwnEngine(Engine):
    """The engine that is started for the test cluster of this machine."""

    can_pull = False

    def __init__(self) -> None:
        """Nothing is started."""
        self._run = cache_folder() / "engine"
        self._pid_file = self._run / "pid"

    @property
    def environment(self) -> dict[str, str]:
        return {"DOCKER_HOST": f"unix://{self._run}/docker.sock", "DOCKER_BUILDKIT": "0"}

    @property
    def host_address(self) -> str:
        return HOST_ADDRESS

    def up(self) -> None:
        """Start it, unless it runs. Raises: RuntimeError with the end of its log."""
        if self.is_ready():
            return
        install_packages()
        self._prepare()
        pid = self._start()
        self._link(pid)
        end = time.monotonic() + _START_SECONDS
        while not self.is_ready():
            if time.monotonic() > end:
                raise RuntimeError(f"the engine did not start:\n{self._log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.05)

    def down(self) -> None:
        """Stop it with all its containers, and put back what a node changed on the host."""
        if not self._pid_file.exists():
            return
        outer = int(self._pid_file.read_text())
        end = time.monotonic() + _STOP_SECONDS
        if _is_engine(outer):  # and not another process, which was given the number since
            for pid in [*_children(outer)]:
                _kill(pid, signal.SIGTERM)
            while _is_alive(outer) and time.monotonic() < end:
                time.sleep(0.05)
            _kill(outer, signal.SIGKILL)
        _ip("link", "del", _HOST_LINK, is_checked=False)
        _remove_control_groups(end)
        if self._settings.exists():
            subprocess.run(["sysctl", "-q", "-w", *self._settings.read_text().split()], check=True)
            self._settings.unlink()
        self._pid_file.unlink()

    def leftovers(self) -> list[str]:
        """What of it is still on the machine, but for its caches."""
        groups = [str(path) for path in Path("/sys/fs/cgroup").glob(f"*/{_CONTROL_GROUP}")]
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        own = [mount for mount in mounts if mount.startswith(str(cache_folder()))]
        links = [_HOST_LINK] if Path("/sys/class/net", _HOST_LINK).exists() else []
        changed = [str(self._settings)] if self._settings.exists() else []
        return [*groups, *own, *links, *changed]

    @property
    def _settings(self) -> Path:
        return self._run / "sysctls"

    @property
    def _log(self) -> Path:
        return self._run / "engine.log"

    def _prepare(self) -> None:
        self._run.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self._run / "exec", ignore_errors=True)
        for stale in ("dockerd.pid", "docker.sock"):  # dockerd would wait for a containerd that is gone
            (self._run / stale).unlink(missing_ok=True)
        if not self._settings.exists():
            values = [f"{key}={Path('/proc/sys', key.replace('.', '/')).read_text().strip()}" for key in _SYSCTLS]
            self._settings.write_text("\n".join(values))
        _ip("link", "del", _HOST_LINK, is_checked=False)

    def _start(self) -> int:
        """Start the process that holds the namespaces; the process id of the one inside."""
        inside = [sys.executable, __file__, "inside", str(self._run)]
        kept = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child=SIGKILL", "--mount-proc"]
        with self._log.open("wb") as log:
            outer = subprocess.Popen(
                [*kept, *inside], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._pid_file.write_text(str(outer.pid))
        own = Path("/proc/self/ns/net").readlink()
        end = time.monotonic() + _START_SECONDS
        while time.monotonic() < end:
            for pid in _children(outer.pid):
                if Path(f"/proc/{pid}/ns/net").readlink() != own:
                    return pid
            time.sleep(0.05)
        raise RuntimeError(f"the engine's namespaces were not made:\n{self._log.read_text(errors='replace')[-2000:]}")

    @staticmethod
    def _link(pid: int) -> None:
        _ip("link", "add", _HOST_LINK, "type", "veth", "peer", "name", _ENGINE_LINK, "netns", str(pid))
        _ip("addr", "add", f"{HOST_ADDRESS}/30", "dev", _HOST_LINK)
        _ip("link", "set", _HOST_LINK, "up")
        _ip("route", "replace", _CONTAINER_NETWORK, "via", ENGINE_ADDRESS)


def install_packages() -> None:
    """Install what Debian has of the engine, without starting any of it."""
    missing = [package for command, package in PACKAGES.items() if shutil.which(command) is None]
    if not missing:
        return
    say(f"installing {' '.join(missing)}")
    policy = Path("/usr/sbin/policy-rc.d")
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        for arguments in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *missing]):
            subprocess.run(["apt-get", *arguments], env=environment, check=True, stdout=subprocess.DEVNULL)
    finally:
        policy.unlink()


def run_inside(folder: Path) -> None:
    """Become the engine: first process of its namespaces."""
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    _ip("link", "set", "lo", "up")
    end = time.monotonic() + _START_SECONDS
    while _ip("link", "show", _ENGINE_LINK, is_checked=False).returncode != 0 and time.monotonic() < end:
        time.sleep(0.05)
    _ip("addr", "add", f"{ENGINE_ADDRESS}/30", "dev", _ENGINE_LINK)
    _ip("link", "set", _ENGINE_LINK, "up")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    os.execvp(
        "dockerd",
        [
            "dockerd",
            f"--data-root={cache_folder() / 'images'}",
            f"--exec-root={folder / 'exec'}",
            f"--pidfile={folder / 'dockerd.pid'}",
            f"--host=unix://{folder}/docker.sock",
            "--oom-score-adjust=0",
            "--storage-driver=overlay2",
            "--exec-opt=native.cgroupdriver=cgroupfs",
            f"--cgroup-parent=/{_CONTROL_GROUP}",
            "--bip=10.77.0.1/24",
            f"--default-address-pool=base={_CONTAINER_NETWORK},size=24",
            f"--add-runtime=without-sys-resource={RUNC}",
            "--default-runtime=without-sys-resource",
        ],
    )


class Way(NamedTuple):
    """Where the cluster runs, and why there: one line for the person who waits."""

    engine: Engine
    reason: str


def find_way(image: str, running: Engine, own: Engine) -> Way:
    """The engine that runs already and has the published node image or can pull it; else the one of the tests.

    Nothing is pulled, and each question has a time limit: an engine behind a network without a way out answers late.

    Args:
        image: The published node image.
        running: An engine that others may have started.
        own: The engine of the tests.
    """
    if own.is_ready():
        return Way(own, "the engine of the tests runs already: a node image that is built here")
    if not running.is_ready():
        return Way(own, "no container engine answers: an engine is started and a node image is built here")
    if running.has_image(image):
        return Way(running, f"a container engine runs and has {image}")
    if running.can_reach(image):
        return Way(running, f"a container engine runs and can pull {image}")
    return Way(
        own, f"a container engine runs, but can't pull {image}: an engine is started and a node image is built here"
    )


def _remove_control_groups(end: float) -> None:
    """Remove what the containers leave; a group goes only when its last process is gone."""
    top = [path for path in Path("/sys/fs/cgroup").glob(f"*/{_CONTROL_GROUP}") if path.is_dir()]
    for folder in top:
        for item in (*sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True), folder):
            while item.exists() and time.monotonic() < end:
                with suppress(OSError):
                    item.rmdir()
                    break
                time.sleep(0.05)


def _ip(*arguments: str, is_checked: bool = True) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["ip", *arguments], check=is_checked, capture_output=True)


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:  # it ended meanwhile
        return False


def _is_engine(pid: int) -> bool:
    try:
        return str(Path(__file__).name).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _kill(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["up"]:
            OwnEngine().up()
        case ["down"]:
            OwnEngine().down()
        case ["inside", folder]:
            run_inside(Path(folder))
        case _:
            sys.exit("usage: engine.py up|down")
