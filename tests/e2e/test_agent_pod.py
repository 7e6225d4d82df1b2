"""An agent in a pod, as the example without the operator runs it, under the restricted profile."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(900)


def test_an_agent_pod_publishes_a_tree_and_comes_back_from_a_kill_with_all_of_it(
    author: Any, site: dict[str, bytes]
) -> None:
    author.start()
    author.fill(site)
    author.mailboat("publish", "/", "--wait", "120")
    assert author.served() == site
    answer = json.loads(author.namespace.read_url("Pod/author-0:8080", "readyz"))
    assert answer["ready"]
    assert [agent["name"] for agent in answer["agents"]] == ["author", "web"]

    author.kill()

    assert author.served() == site  # its target was empty: the journal brought everything back
    author.fill({"late.txt": b"after the kill"})
    author.mailboat("publish", "/late.txt", "--wait", "120")
    assert author.served() == {**site, "late.txt": b"after the kill"}
