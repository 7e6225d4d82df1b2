"""Builds the answers that are not plain documents: problems, and pages of lists. Called by routes and the gate."""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import Response

from mailboat.api.problems import MEDIA_TYPE, Problem


def problem_answer(problem: Problem) -> Response:
    """Return the response for a problem."""
    content = json.dumps(problem.document(), ensure_ascii=False).encode()
    return Response(content, problem.status, headers=problem.headers, media_type=MEDIA_TYPE)


def json_answer(document: Any, status: int = 200) -> Response:
    """A document in a foreign shape, such as Sling's."""
    return Response(json.dumps(document, ensure_ascii=False), status, media_type="application/json")
