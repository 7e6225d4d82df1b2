"""What a Publisher and a SubscriberPool become, as a whole: `pytest --update-golden` writes the files again."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from mailboat.config.decoder import decode_config
from mailboat.config.document import TokenConfig, Verb
from mailboat.config.storage import Secret
from mailboat.retention.task import check_bounds
from mailboat_operator.kinds.journal.agent_config import journal_mounts
from mailboat_operator.kinds.publisher.manifests import publisher_config, user_mounts
from mailboat_operator.kinds.publisher.plan import plan_publisher
from mailboat_operator.kinds.registry import decode
from mailboat_operator.kinds.subscriber_pool.manifests import pool_config
from mailboat_operator.kinds.subscriber_pool.plan import plan_pool
from mailboat_operator.kinds.workload_context import SecretFound, WorkloadContext
from mailboat_operator.plan.actions import Apply, Create
from mailboat_operator.workload.mounts import config_text
from mailboat_operator.workload.pods import AgentImage

GOLDEN = Path(__file__).parent / "golden"


def stored(manifest: dict[str, Any]) -> Any:
    """The object as it would be read from the API server."""
    metadata = {**manifest["metadata"], "namespace": "shop", "uid": "0-1-2-3", "generation": 1}
    return decode({**manifest, "metadata": metadata})


@pytest.mark.parametrize(("kind", "plan"), [("Publisher", plan_publisher), ("SubscriberPool", plan_pool)])
def test_children_are_rendered_as_they_were(
    kind: str, plan: Any, manifest_of: Callable[..., dict[str, Any]], request: pytest.FixtureRequest
) -> None:
    journal = stored(manifest_of("Journal"))
    secrets = {mount.secret: SecretFound("7", frozenset(mount.keys)) for mount in journal_mounts(journal.spec)}
    context = WorkloadContext(journal, secrets, {}, AgentImage("mailboat:1"), datetime(2026, 11, 21, tzinfo=UTC))
    made = plan(stored(manifest_of(kind)), context)
    manifests = [action.manifest for action in made.actions if isinstance(action, Apply | Create)]
    text = yaml.safe_dump_all([*manifests, {"status": made.status}], sort_keys=True)
    file = GOLDEN / f"{kind.lower()}.yaml"
    if request.config.getoption("--update-golden"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    assert text == file.read_text()


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("Journal", {"topics": {"retention": {"time": "1s", "statusTime": "2h", "consumption": {"min": "0s"}}}}),
        ("SubscriberPool", {"readiness": {"maxLatency": "1ms", "idle": "1ms", "force": "1ms", "maxLag": "1s"}}),
        ("SubscriberPool", {"staging": {"waitFor": {"name": "golden"}, "timeout": "1s"}}),
        ("SubscriberPool", {"pieces": {"expireAfter": "1s"}}),
        (
            "Publisher",
            {
                "events": {
                    "silent": "1s",
                    "webhooks": [{"name": "crm", "url": "http://hooks.example/", "timeout": "100ms"}],
                    "relay": {"host": "smtp", "sender": "a@example.org", "timeout": "100ms"},
                }
            },
        ),
        (
            "Journal",
            {
                "topics": {
                    "retention": {
                        "time": "11499d",
                        "statusTime": "269999h",
                        "size": "999Ti",
                        "consumption": {"min": "11499d", "max": "11499d"},
                    }
                }
            },
        ),
        ("SubscriberPool", {"retries": {"firstPause": "11499d", "longestPause": "9999999m"}}),
        ("SubscriberPool", {"staging": {"waitFor": {"name": "golden"}, "timeout": "11499d"}}),
    ],
)
def test_the_extreme_values_of_a_resource_are_valid_for_the_agent(
    kind: str, change: dict[str, Any], manifest_of: Any
) -> None:
    """A value that the API server accepts and the agent refuses would be a pod that crashes again and again."""
    journal = stored(manifest_of("Journal", change if kind == "Journal" else {}))
    found = stored(manifest_of("Publisher" if kind == "Journal" else kind, {} if kind == "Journal" else change))
    made = publisher_config(found, journal.spec) if kind != "SubscriberPool" else pool_config(found, journal.spec)
    check_bounds(decode_config(json.loads(config_text(made))).retention)


def test_tokens_of_a_publisher_reach_its_agent(manifest_of: Any) -> None:
    token = {"name": "news", "secretRef": {"name": "keys"}, "verbs": ["distribute"], "paths": ["/content/*/news"]}
    found = stored(manifest_of("Publisher", {"http": {"tokens": [token]}}))
    made = decode_config(json.loads(config_text(publisher_config(found, stored(manifest_of("Journal")).spec))))
    file = Secret(file="/run/mailboat/http-news/token")
    assert [token.name for token in made.http.tokens] == ["operator", "news"]
    assert made.http.tokens[1] == TokenConfig("news", file, (Verb.DISTRIBUTE,), ("/content/*/news",))
    assert [(user_mount.folder, user_mount.secret) for user_mount in user_mounts(found)] == [("http-news", "keys")]
