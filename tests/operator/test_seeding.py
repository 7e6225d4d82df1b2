"""What a pool's init container runs is what `mailboat` understands, and leads to a member near the journal's end."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from mailboat_operator.kinds.registry import decode
from mailboat_operator.kinds.subscriber_pool.plan import plan_pool
from mailboat_operator.kinds.workload_context import WorkloadContext
from mailboat_operator.plan.actions import Apply
from mailboat_operator.workload.pods import AgentImage
from support.forked_programs import run_mailboat


def stored(kind: str, name: str, spec: dict[str, Any]) -> Any:
    head = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "generation": 1}
    return decode({"apiVersion": "mailboat.dev/v1alpha1", "kind": kind, "metadata": head, "spec": spec})


def containers(target: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The init container and the agent's, as a pool's workload has them."""
    journal = stored("Journal", "main", {"kafka": {"bootstrapServers": ["kafka:9092"]}})
    spec = {
        "journalRef": {"name": "main"},
        "target": {target: {"volume": {"size": "1Gi"}}},
        "seed": {"snapshot": "edge"},
    }
    context = WorkloadContext(journal, {}, {}, AgentImage("mailboat:1"), datetime(2026, 11, 21, tzinfo=UTC))
    plan = plan_pool(stored("SubscriberPool", "edge", spec), context)
    (made,) = [
        action.manifest
        for action in plan.actions
        if isinstance(action, Apply) and action.manifest["kind"] == "StatefulSet"
    ]
    pod = made["spec"]["template"]["spec"]
    return pod["initContainers"][0], pod["containers"][0]


def mailboat(*words: object) -> str:
    done = run_mailboat(words)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("target", ["generations", "files", "sqlite"])
def test_a_seeded_member_begins_where_the_snapshot_stands(target: str, tmp_path: Path) -> None:
    first, site = tmp_path / "first", tmp_path / "site"
    site.mkdir()
    (site / "index.html").write_text("<h1>hello</h1>")
    mailboat("init", "--home", first)
    mailboat("publish", site, "/", "--home", first)
    mailboat("subscribe", "edge-0", "--into", f"files:{tmp_path / 'edge-0'}", "--until", "caught-up", "--home", first)
    mailboat("content", "snapshot", f"files:{tmp_path / 'edge-0'}", "blob:edge", "--home", first)
    config, home = tmp_path / "mailboat.yaml", tmp_path / "second"
    where = {"journal": {"path": str(first / "journal.db")}, "blobs": {"path": str(first / "blobs")}}
    member = {"name": "edge-1", "target": f"{target}:content" + ("/content.db" if target == "sqlite" else "")}
    config.write_text(json.dumps({**where, "agents": {"subscribers": [member]}}))
    init, _ = containers(target)
    places = {"/etc/mailboat/mailboat.yaml": str(config), "/var/lib/mailboat": str(home)}
    words = [places.get(arg, arg.replace("/var/lib/mailboat", str(home))) for arg in init["args"]]
    assert "at offset 1" in mailboat(*words)
    assert "left as it is" in mailboat(*words)
    place = f"{target}:{home / member['target'].partition(':')[2]}"
    assert mailboat("content", "digest", place, "-o", "name") == mailboat(
        "content", "digest", f"files:{tmp_path / 'edge-0'}", "-o", "name"
    )


def test_the_container_that_seeds_has_the_agents_rights_and_volumes_and_no_more() -> None:
    init, agent = containers("files")
    for name in ("image", "securityContext", "volumeMounts", "resources"):
        assert init[name] == agent[name]
    assert "env" not in init
