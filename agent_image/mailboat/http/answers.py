"""Builds answers that are not plain documents: problems, Sling's shapes, files of the dashboard."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from mailboat.api.dashboard_files import dashboard_answer
from mailboat.api.problems import MEDIA_TYPE, Problem


def problem_answer(problem: Problem) -> Response:
    """Return the response for a problem."""
    content = json.dumps(problem.document(), ensure_ascii=False).encode()
    return Response(content, problem.status, headers=problem.headers, media_type=MEDIA_TYPE)


def json_answer(document: Any, status: int = 200) -> Response:
    """A document in a foreign shape, such as Sling's."""
    return Response(json.dumps(document, ensure_ascii=False), status, media_type="application/json")


async def dashboard(request: Request) -> Response:
    """A file of the dashboard, which is in the wheel: none is built, and none comes from elsewhere."""
    body, headers, media_type = dashboard_answer(request.url.path, request.headers.get("accept-encoding", ""))
    return Response(body, headers=headers, media_type=media_type)
