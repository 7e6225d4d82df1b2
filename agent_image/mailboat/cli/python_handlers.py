"""Job handlers in Python modules of the user, and how they publish: for `mailboat worker run --import MODULE`."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from mailboat.errors import UsageError
from mailboat.jobs.handlers import JobHandlers, Publish
from mailboat.library import open_mailboat
from mailboat.model.identifiers import parse_request_id
from mailboat.model.paths import parse_path
from mailboat.model.requests import DistributionRequest, add_request

if TYPE_CHECKING:
    from mailboat.api.client import HttpControl
    from mailboat.content.port import Source


def load_handlers(module_name: str) -> Sequence[JobHandlers]:
    """Import a module, also from the working directory, and return its `JobHandlers`. Raises: UsageError."""
    if not sys.path or sys.path[0] != str(Path.cwd()):
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # the module's own: what it is goes to its author, not to ours
        raise UsageError(
            f"--import {module_name}: the module cannot be imported: {type(error).__name__}: {error}",
            next_step="correct the module; --verbose prints the traceback",
        ) from error
    found = [value for value in vars(module).values() if isinstance(value, JobHandlers)]
    if not found:
        raise UsageError(f"--import {module_name}: the module has no mailboat.JobHandlers()")
    return list(dict.fromkeys(found))


def publish_at_home(home_path: Path) -> Publish:
    """Publish from this machine, with the publishers of the home."""
    # One at a time: threads of the worker would refuse each other the publisher's state.
    lock = threading.Lock()

    def publish(
        paths: Sequence[str], source: object | None, publisher: str | None, request_id: str, /, *, deep: bool
    ) -> str:
        if source is None:
            raise UsageError("publish: the worker runs on a home and needs the argument source")
        opened = cast("str | Source", source)
        with lock, open_mailboat(home_path) as boat:
            receipt = boat.publish(opened, paths, deep=deep, request_id=request_id, publisher=publisher)
        return str(receipt.package_id)

    return publish


def publish_at_agent(client: HttpControl) -> Publish:
    """Publish from the source of a publisher of the agent."""

    def publish(
        paths: Sequence[str], source: object | None, publisher: str | None, request_id: str, /, *, deep: bool
    ) -> str:
        if source is not None or publisher is None:
            raise UsageError("publish: the worker runs on an agent and needs the argument publisher, and no source")
        paths_only = add_request(map(parse_path, paths), is_deep=deep)
        request = DistributionRequest(
            paths_only.action, paths_only.paths, paths_only.deep_paths, parse_request_id(request_id)
        )
        return client.distribute(publisher, request).package_id

    return publish
