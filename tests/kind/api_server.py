"""A Kubernetes API server without nodes: etcd, kube-apiserver and controller manager, for tests of what is stored.

`python tests/kind/api_server.py FOLDER` starts them, writes `FOLDER/kubeconfig`, says `ready` on standard output, and
stops when standard input ends, so that it never outlives who started it; killed itself, it takes them with it. The
lines `kill` and `start` on standard input kill the API server alone, and start it again. Nothing listens but on
127.0.0.1.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from builds import KUBEBOX, build
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from support.free_ports import free_ports

READY_SECONDS = 120.0
_SIGNAL_WHEN_PARENT_ENDS = 1  # PR_SET_PDEATHSIG of prctl(2)
ADMIN_TOKEN = "admin-of-the-tests"  # of a server that lives for one test session on 127.0.0.1

AUDIT_POLICY = {  # what service accounts ask for, to compare it with what they may
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts"]}, {"level": "None"}],
}


class ApiServer:
    """The processes, from `start` to `stop`."""

    def __init__(self, folder: Path) -> None:
        """Keep everything in `folder`."""
        self._folder = folder
        self._binary = build(KUBEBOX)
        self._etcd, self._peer, self._port, self._manager = free_ports(4)
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def kubeconfig(self) -> Path:
        """Who may do all."""
        return self._folder / "kubeconfig"

    def start(self) -> None:
        """Start all three; returns when the server is ready. Raises: RuntimeError with the end of a log."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._write_files()
        self._run("etcd", self._etcd_arguments())
        self._run("kube-apiserver", self._server_arguments())
        self._wait(f"https://127.0.0.1:{self._port}/readyz")
        self._run("kube-controller-manager", self._manager_arguments())

    def kill_server(self) -> None:
        """Kill the API server alone; what it stored stays."""
        server = self._processes.pop(1)
        server.kill()
        server.wait()

    def start_server(self) -> None:
        """Start it again, where it was; returns when it is ready."""
        self._run("kube-apiserver", self._server_arguments())
        self._processes.insert(1, self._processes.pop())
        self._wait(f"https://127.0.0.1:{self._port}/readyz")

    def stop(self) -> None:
        """Kill them: a graceful stop waits for watchers that are gone."""
        for process in reversed(self._processes):
            process.send_signal(signal.SIGKILL)
            process.wait()

    def _write_files(self) -> None:
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        (self._folder / "accounts.key").write_bytes(pem)
        (self._folder / "tokens.csv").write_text(f'{ADMIN_TOKEN},admin,admin,"system:masters"\n')
        (self._folder / "audit.json").write_text(json.dumps(AUDIT_POLICY))
        server = {"server": f"https://127.0.0.1:{self._port}", "insecure-skip-tls-verify": True}
        self.kubeconfig.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "test",
                    "clusters": [{"name": "test", "cluster": server}],
                    "users": [{"name": "admin", "user": {"token": ADMIN_TOKEN}}],
                    "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
                }
            )
        )

    def _etcd_arguments(self) -> list[str]:
        client, peer = f"http://127.0.0.1:{self._etcd}", f"http://127.0.0.1:{self._peer}"
        return [
            f"--data-dir={self._folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]

    def _server_arguments(self) -> list[str]:
        accounts = self._folder / "accounts.key"
        return [
            f"--etcd-servers=http://127.0.0.1:{self._etcd}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--cert-dir={self._folder / 'certificates'}",
            f"--token-auth-file={self._folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.80.0.0/16",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={accounts}",
            f"--service-account-signing-key-file={accounts}",
            "--endpoint-reconciler-type=none",
            # with it, an idle server takes 4 % of a core instead of 1.6 %
            "--enable-priority-and-fairness=false",
            "--profiling=false",
            f"--audit-policy-file={self._folder / 'audit.json'}",
            f"--audit-log-path={self._folder / 'requests.log'}",
        ]

    def _manager_arguments(self) -> list[str]:
        return [
            f"--kubeconfig={self.kubeconfig}",
            f"--service-account-private-key-file={self._folder / 'accounts.key'}",
            f"--cert-dir={self._folder / 'certificates-of-the-manager'}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._manager}",
            "--leader-elect=false",
            "--kube-api-qps=300",  # else the default service account of a namespace comes seconds late
            "--kube-api-burst=600",
        ]

    def _run(self, name: str, arguments: list[str]) -> None:
        with (self._folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [self._binary, name, *arguments],
                stdout=log,
                stderr=log,
                # the heap grows from nothing: with Go's default the collector takes 30 % of the CPU of a start
                env={**os.environ, "GOGC": "400"},
                preexec_fn=end_with_parent,  # noqa: PLW1509  # this process has one thread
            )
        self._processes.append(process)

    def _wait(self, url: str) -> None:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {ADMIN_TOKEN}"})
        end = time.monotonic() + READY_SECONDS
        while time.monotonic() < end:
            for process in self._processes:
                if process.poll() is not None:
                    raise RuntimeError(self._last_words())
            try:
                with urllib.request.urlopen(request, timeout=2, context=context):
                    return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError(self._last_words())

    def _last_words(self) -> str:
        logs = [f"{log.name}: {log.read_text(errors='replace')[-2000:]}" for log in self._folder.glob("*.log")]
        return "the API server did not become ready\n" + "\n".join(logs)


def end_with_parent() -> None:
    """In a new process: have the kernel kill it when the thread that made it ends, however that ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_SIGNAL_WHEN_PARENT_ENDS, signal.SIGKILL)


def _say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def main(folder: str) -> None:
    """Run until the standard input ends."""
    os.setpgrp()
    server = ApiServer(Path(folder))
    try:
        server.start()
        _say("ready")
        for line in sys.stdin:
            if line == "kill\n":
                server.kill_server()
            elif line == "start\n":
                server.start_server()
            _say("done")
    finally:
        server.stop()


if __name__ == "__main__":
    main(sys.argv[1])
