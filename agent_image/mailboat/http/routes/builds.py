"""Bulk builds: published packages of each, and the imports per subscriber."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Path

from mailboat.api.records import BuildView
from mailboat.config.document import Verb
from mailboat.http.examples import BUILD
from mailboat.http.ports import LONGEST_NAME, Ports, operation

router = APIRouter(prefix="/api/v1/builds", tags=["builds"])

BuildName = Annotated[str, Path(description="The build's id.", max_length=LONGEST_NAME, examples=["release-2026-11"])]


@router.get("", **operation(Verb.VIEW, "List bulk builds", example=[BUILD]))
def list_builds(ports: Ports) -> Sequence[BuildView]:
    """The bulk builds whose packages the log holds, the newest first."""
    return ports.control.builds()


@router.get("/{build_id}", **operation(Verb.VIEW, "Get a bulk build", example=BUILD, also=(404,)))
def show_build(build_id: BuildName, ports: Ports) -> BuildView:
    """How much of a build is published, and how much of it every subscriber has imported."""
    (found,) = ports.control.builds(build_id)
    return found
