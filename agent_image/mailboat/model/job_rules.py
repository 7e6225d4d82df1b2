"""Rules of the configuration that add a job for each package that was imported or distributed. Pure.

The id of the request is derived from the package, the agent and the rule, so that adding the job again changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from mailboat.errors import UsageError
from mailboat.model.identifiers import AgentName, Offset, PackageId
from mailboat.model.jobs import NewJob, parse_topic
from mailboat.model.messages import Action
from mailboat.model.path_patterns import parse_subtree
from mailboat.model.paths import NodePath

MAX_PATH_BYTES: Final = 128 * 1024
"""Of the paths in one payload: half of what a job may carry. `more_paths` counts the others."""

MAX_KEY_CHARACTERS: Final = 256
_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")
_PLACEHOLDERS: Final = ("publisher", "subscriber")


class PackageEvent(NamedTuple):
    """A package that an agent imported, or that was distributed.

    Attributes:
        kind: `imported` or `distributed`.
        agent: The subscriber that imported it; the publisher of a distributed package.
    """

    kind: str
    agent: AgentName
    offset: Offset
    package_id: PackageId
    action: Action | None
    publisher: AgentName | None
    paths: tuple[NodePath, ...]
    deep_paths: tuple[NodePath, ...]


class JobRule:
    """One rule: packages with matching paths add a job. Unchangeable."""

    def __init__(self, pattern: str, topic: str, key: str = "") -> None:
        """Check a rule.

        Args:
            pattern: Content path with everything below it, such as `/content/**`; a name may contain one `*`.
            topic: Of the job.
            key: Of the job; `{publisher}` and `{subscriber}` are replaced.

        Raises: UsageError, PathRefusedError.
        """
        self._pattern = parse_subtree(pattern)
        if pattern in ("**", "/**"):
            pattern = "/"
        self.topic: Final = parse_topic(topic)
        unknown = [name for name in _PLACEHOLDER.findall(key) if name not in _PLACEHOLDERS]
        if unknown:
            raise UsageError(f"unknown placeholder {{{unknown[0]}}}; expected {{publisher}} or {{subscriber}}")
        self._key = key
        self._digest = hashlib.blake2b(f"{pattern}\x00{topic}\x00{key}".encode(), digest_size=8).hexdigest()

    def job(self, event: PackageEvent) -> NewJob | None:
        """The job that the package adds; None when the rule does not concern it."""
        paths = [path for path in event.paths if self._concerns(path, event)]
        if not paths:
            return None
        request = (event.kind, event.agent, event.package_id, str(event.offset), self._digest)
        names = {"{publisher}": event.publisher or "", "{subscriber}": event.agent}
        key = _PLACEHOLDER.sub(lambda found: names[found[0]], self._key)[:MAX_KEY_CHARACTERS]
        request_id = hashlib.blake2b("\0".join(request).encode(), digest_size=16).hexdigest()
        return NewJob(self.topic, _payload(event, paths), key, request_id=f"{event.kind}-{request_id}")

    def _concerns(self, path: NodePath, event: PackageEvent) -> bool:
        if self._pattern.covers(path):
            return True
        is_deep = event.action is Action.DELETE or path in event.deep_paths
        return is_deep and self._pattern.lies_below(path)


def _payload(event: PackageEvent, paths: Sequence[NodePath]) -> bytes:
    shown, size = [], 0
    for path in paths:
        size += len(json.dumps(path, ensure_ascii=False).encode()) + 2
        if size > MAX_PATH_BYTES:
            break
        shown.append(path)
    deep = set(event.deep_paths)
    document: dict[str, Any] = {
        "event": event.kind,
        "package": event.package_id,
        "offset": event.offset,
        "publisher": event.publisher,
        "paths": shown,
        "more_paths": len(paths) - len(shown),
        # A DELETE means everything below its paths without saying so.
        "has_deep_paths": event.action is Action.DELETE or any(path in deep for path in shown),
    }
    if event.action is not None:
        document["action"] = event.action.name
    if event.kind == "imported":
        document["subscriber"] = event.agent
    return json.dumps(document, ensure_ascii=False).encode()
