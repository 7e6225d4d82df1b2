"""`kubectl mailboat` beside a program `kubectl` that fails, or gives what a cluster would."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest
from mailboat.cli.kubectl import Kubectl, ask
from mailboat.cli.kubectl_completion import candidates
from mailboat.cli.main import main
from mailboat.config.document import HttpConfig, TokenConfig, Verb
from mailboat.config.storage import Secret
from mailboat.testing.wait import wait_until
from support.fake_control import FakeControl, FakeSubscriber


def publisher(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": spec}


def kubectl(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of that name at the head of PATH; it writes its arguments to `asked` beside it."""
    program = folder / "kubectl"
    program.write_text(f'#!/bin/sh\necho "$@" >> {folder}/asked\n{script}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_the_help_of_a_command_asks_no_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kubectl(tmp_path, "exit 1", monkeypatch)
    assert ask(["-n", "shop", "status", "--help"]) == 0
    assert "--watch" in capsys.readouterr().out
    assert not (tmp_path / "asked").exists()


def test_what_kubectl_can_not_do_is_said_in_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kubectl(tmp_path, 'echo "error: the server is away" >&2; exit 1', monkeypatch)
    assert ask(["-n", "shop", "--context", "blue", "status"]) == 1
    said = capsys.readouterr().err
    assert "KubectlFailed" in said
    assert "error: the server is away" in said
    assert (tmp_path / "asked").read_text() == (
        "--namespace=shop --context=blue get publishers.mailboat.dev --output=json\n"
    )


def cluster_script(secret: dict[str, str], forwarding: str) -> str:
    found = json.dumps({"items": [publisher("author")]})
    return f"""case "$*" in
*publishers*) echo '{found}' ;;
*secrets*) echo '{json.dumps({"data": secret})}' ;;
*port-forward*) {forwarding} ;;
esac"""


def test_a_port_that_can_not_be_forwarded_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    token = base64.b64encode(b"secret-of-this-test").decode()
    kubectl(tmp_path, cluster_script({"token": token}, 'echo "error: pod is not running" >&2; exit 1'), monkeypatch)
    assert ask(["status"]) == 1
    said = capsys.readouterr().err
    assert "can't forward a port of service/author: error: pod is not running" in said
    assert "secret-of-this-test" not in said + (tmp_path / "asked").read_text()


def test_a_secret_without_a_token_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kubectl(tmp_path, cluster_script({}, "exit 1"), monkeypatch)
    assert ask(["status"]) == 2
    assert "the Secret author-token has no entry 'token'" in capsys.readouterr().err


def test_token_is_in_no_file_while_a_command_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], serve: Any
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TOKEN_OF_THE_AGENT", "secret-of-this-test")
    viewer = TokenConfig("viewer", Secret(env="TOKEN_OF_THE_AGENT"), (Verb.VIEW,))
    server = serve(FakeControl(FakeSubscriber("edge-1")), HttpConfig(tokens=(viewer,)))
    forwarding = f'echo "Forwarding from 127.0.0.1:{server.url.rpartition(":")[2]} -> 8080"; exec sleep 20'
    token = base64.b64encode(b"secret-of-this-test").decode()
    kubectl(tmp_path, cluster_script({"token": token}, forwarding), monkeypatch)
    seen = list[str]()

    def look(arguments: list[str]) -> int:
        seen.extend(str(file) for file in tmp_path.rglob("*") if b"secret-of-this-test" in file.read_bytes())
        return main(arguments)

    monkeypatch.setattr("mailboat.cli.kubectl.main", look)
    assert (ask(["subscribers", "ls", "-o", "name"]), seen) == (0, [])
    assert capsys.readouterr().out == "edge-1\n"


def test_port_is_forwarded_whatever_kubectl_prints_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = 'yes "Handling connection for 8080" | head -n 100000; touch "$0.printed"; exec sleep 20'
    kubectl(tmp_path, f'echo "Forwarding from 127.0.0.1:1 -> 8080"; {lines}', monkeypatch)
    with Kubectl().forwarded("author") as url:
        wait_until((tmp_path / "kubectl.printed").exists)
    assert url == "http://127.0.0.1:1"


def test_port_is_forwarded_again_when_its_pod_has_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """kubectl ends with the pod that it found; a watch goes on with the next one, at the same address."""
    first = f'touch {tmp_path}/first; echo "Forwarding from 127.0.0.1:4711 -> 8080"; exit 1'
    later = f"touch {tmp_path}/later; exec sleep 20"
    kubectl(tmp_path, f"if [ -e {tmp_path}/first ]; then {later}; else {first}; fi", monkeypatch)
    with Kubectl().forwarded("author") as url:
        wait_until((tmp_path / "later").exists)
    words = "port-forward --address=127.0.0.1 service/author"
    assert (tmp_path / "asked").read_text().splitlines() == [f"{words} :8080", f"{words} 4711:8080"]
    assert url == "http://127.0.0.1:4711"


def test_ctrl_c_while_kubectl_is_awaited_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Kubectl, "get", interrupted)
    assert ask(["status"]) == 130
    assert capsys.readouterr().err == "stopped by Ctrl-C\n"


def test_what_is_no_json_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kubectl(tmp_path, "echo hello", monkeypatch)
    assert ask(["status"]) == 1
    assert "printed no JSON" in capsys.readouterr().err


def test_completion_offers_names_of_the_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kubectl(tmp_path, "printf 'namespace/shop\\nnamespace/default\\n'", monkeypatch)
    assert candidates(["--context", "blue", "-n", "s"]) == (["shop"], 4)
    assert (tmp_path / "asked").read_text() == "--context=blue get namespaces --output=name\n"


def test_completion_asks_the_agent_for_names_of_subscribers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serve: Any
) -> None:
    port = serve(FakeControl(FakeSubscriber("edge-1"), FakeSubscriber("other"))).url.rpartition(":")[2]
    forwarding = f'echo "Forwarding from 127.0.0.1:{port} -> 8080"; exec sleep 20'
    kubectl(tmp_path, cluster_script({"token": base64.b64encode(b"any").decode()}, forwarding), monkeypatch)
    assert candidates(["-n", "shop", "errors", "ls", "ed"]) == (["edge-1"], 4)
