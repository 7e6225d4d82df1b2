"""The probes as operations of the whole API, so that its description has them."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.responses import PlainTextResponse

from mailboat.agent.health import LivenessView, ReadinessView
from mailboat.config.document import Verb
from mailboat.http import probes
from mailboat.http.ports import problem_response, verb_needed

router = APIRouter(tags=["process"])


def _answers(record: type | None, *problems: int) -> dict[int | str, dict[str, Any]]:
    found: dict[int | str, dict[str, Any]] = {one: problem_response(one) for one in problems}
    if record is not None:
        found[200] = {"description": "Yes."}
        found[503] = {"description": "No; the document says why.", "model": record}
    return found


router.add_api_route(
    "/healthz",
    probes.healthz,
    summary="Does the process make progress?",
    response_model=LivenessView,
    responses=_answers(LivenessView),
    openapi_extra={"security": []},
)
router.add_api_route(
    "/readyz",
    probes.readyz,
    summary="May its agents serve?",
    response_model=ReadinessView,
    responses=_answers(ReadinessView),
    openapi_extra={"security": []},
)
router.add_api_route(
    "/metrics",
    probes.metrics,
    summary="Metrics",
    response_model=None,
    response_class=PlainTextResponse,
    responses={
        200: {
            "description": "The figures, in the format that was asked for.",
            "content": {"application/openmetrics-text": {"schema": {"type": "string"}}},
        },
        **_answers(None, 401, 403, 429),
    },
    openapi_extra=verb_needed(Verb.VIEW),
)
