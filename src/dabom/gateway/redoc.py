"""The page `/redoc`. Its script loads a logo from its maker's server; ours does not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import fastapi_offline
from fastapi import Request, Response
from fastapi.openapi.docs import get_redoc_html
from fastapi.responses import HTMLResponse  # noqa: TC002 FastAPI reads the annotations of routes

if TYPE_CHECKING:
    from fastapi import FastAPI

_LOGO = b"https://cdn.redoc.ly/redoc/logo-mini.svg"
_NOTHING = b"data:,"


def add_redoc(pages: FastAPI) -> None:
    """Serve `/redoc` and its script from the packaged files, without the one address outside."""

    @pages.get("/redoc", include_in_schema=False)
    async def redoc(request: Request) -> HTMLResponse:
        root = request.scope.get("root_path", "")
        return get_redoc_html(
            openapi_url=f"{root}{pages.openapi_url}",
            title=f"{pages.title} - ReDoc",
            redoc_js_url=f"{root}/redoc.js",
            redoc_favicon_url=f"{root}/static-offline-docs/favicon.png",
            with_google_fonts=False,
        )

    @pages.get("/redoc.js", include_in_schema=False)
    def script() -> Response:
        path = Path(fastapi_offline.__file__).parent / "static" / "redoc.standalone.js"
        return Response(path.read_bytes().replace(_LOGO, _NOTHING), media_type="text/javascript")
