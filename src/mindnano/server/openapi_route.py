"""GET /openapi.json."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response


async def document(request: Request) -> Response:
    """Made once, when the application is."""
    return Response(request.app.state.openapi, media_type="application/json")
