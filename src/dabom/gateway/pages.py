"""The pages that the gateway answers itself: health, metrics and the description of its API, all offline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException

from dabom import __version__
from dabom.errors import ClientError, MethodNotAllowed, NotFound
from dabom.gateway.openapi import DESCRIPTION, add_relayed_paths
from dabom.gateway.redoc import add_redoc

if TYPE_CHECKING:
    from starlette.requests import Request

    from dabom.gateway.gateway import Gateway


_READY = {"ready": True, "draining": False, "upstreams": {"10.0.0.7:8000": "ok"}}
_METRICS = 'dabom_requests_total{modality="text",path="/chat",route="",status="200",upstream="gpu0"} 12.0\n'


def _shown(example: object, kind: str = "application/json") -> dict[int | str, dict[str, Any]]:
    return {200: {"content": {kind: {"example": example}}}}


def build_pages(gateway: Gateway) -> FastAPI:
    """The FastAPI app behind everything that is not relayed."""
    pages: FastAPI = FastAPIOffline(
        title="Dabom", version=__version__, description=DESCRIPTION, redoc_url=None, redirect_slashes=False
    )
    add_redoc(pages)
    make_schema = pages.openapi

    @pages.get("/healthz", tags=["operation"], summary="Is the gateway up?", responses=_shown({"ok": True}))
    async def healthz() -> dict[str, bool]:
        """Always 200 once started; upstreams are not asked."""
        return {"ok": True}

    @pages.get(
        "/readyz",
        tags=["operation"],
        summary="Can at least one upstream serve?",
        responses=_shown(_READY) | {503: {"description": "None can, or the gateway is shutting down"}},
    )
    async def readyz() -> JSONResponse:
        """200 when an upstream can serve, else 503; `upstreams` has the state of each."""
        states = await gateway.fleet.states()
        ready = "ok" in states.values() and not gateway.draining and gateway.accountable
        body = {"ready": ready, "draining": gateway.draining, "upstreams": states}
        return JSONResponse(body, 200 if ready else 503)

    @pages.get(
        "/metrics",
        tags=["operation"],
        summary="Prometheus metrics",
        response_class=Response,
        responses=_shown(_METRICS, "text/plain"),
    )
    async def metrics() -> Response:
        """Prometheus text format."""
        return Response(gateway.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    pages.add_exception_handler(HTTPException, _refuse)

    def openapi() -> dict[str, Any]:
        schema = make_schema()
        add_relayed_paths(schema)
        return schema

    pages.openapi = openapi  # type: ignore[method-assign]
    return pages


async def _refuse(request: Request, error: Exception) -> JSONResponse:
    ours: ClientError
    if isinstance(error, HTTPException) and error.status_code == MethodNotAllowed.status:
        ours = MethodNotAllowed(f"{request.url.path[:200]} does not take {request.method}")
    else:
        ours = NotFound(f"there is no {request.url.path[:200]}; /docs lists what there is")
    return JSONResponse(ours.body(), ours.status)
