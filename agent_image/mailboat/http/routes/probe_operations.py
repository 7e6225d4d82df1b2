"""The probes as operations of the whole API, so that its description has them."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter
from starlette.responses import PlainTextResponse

from mailboat.agent.health import AgentView, LivenessView, ReadinessView
from mailboat.api.process_views import MemoryView
from mailboat.api.records import document_of
from mailboat.config.document import Verb
from mailboat.http import probes
from mailboat.http.examples import MEMORY
from mailboat.http.ports import Ports, operation, problem_response, verb_needed

router = APIRouter(tags=["process"])
_READY: Final = AgentView("author", "publisher", "running", ready=True)
_BEHIND: Final = AgentView("edge-1", "subscriber", "running", ready=False, reason="lag")


def _answers(good: LivenessView | ReadinessView, bad: LivenessView | ReadinessView) -> dict[int | str, dict[str, Any]]:
    """How the answers of a probe are described, by an example of each."""
    shown = [{"application/json": {"example": document_of(example)}} for example in (good, bad)]
    return {
        200: {"description": "Yes.", "content": shown[0]},
        503: {"description": "Not healthy; the document names the cause.", "model": type(bad), "content": shown[1]},
    }


@router.get("/api/v1/memory", **operation(Verb.VIEW, "Memory of the agent", example=MEMORY))
def show_memory(ports: Ports) -> MemoryView:
    """What the bounded structures of the process hold; `/metrics` has the same figures."""
    return ports.memory.view()


router.add_api_route(
    "/healthz",
    probes.healthz,
    summary="Liveness probe",
    response_model=LivenessView,
    responses=_answers(LivenessView(alive=True), LivenessView(alive=False, stuck=("mailboat-log",))),
    openapi_extra={"security": []},
)
router.add_api_route(
    "/readyz",
    probes.readyz,
    summary="Readiness probe",
    response_model=ReadinessView,
    responses=_answers(ReadinessView(True, (_READY,)), ReadinessView(False, (_READY, _BEHIND))),
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
            "description": "Metrics, in the requested format.",
            "content": {"application/openmetrics-text": {"schema": {"type": "string"}}},
        },
        **{status: problem_response(status) for status in (401, 403, 429)},
    },
    openapi_extra=verb_needed(Verb.VIEW),
)
