"""The dashboard at `/` of an agent: static files of the wheel. No file is built, and none comes from elsewhere."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from mailboat.api.dashboard_files import dashboard_answer


async def dashboard(request: Request) -> Response:
    """A file of the dashboard."""
    body, headers, media_type = dashboard_answer(request.url.path, request.headers.get("accept-encoding", ""))
    return Response(body, headers=headers, media_type=media_type)
