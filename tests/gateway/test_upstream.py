"""The connections of one upstream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dabom.gateway import Clocks, UpstreamSettings
from dabom.gateway.admission import Meter, Permits
from dabom.gateway.health import Health, HealthSettings
from dabom.gateway.upstream import Upstream
from dabom.testing import ScriptedUpstream

if TYPE_CHECKING:
    import pytest


async def test_what_comes_to_rest_after_the_end_is_closed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dabom.gateway.upstream._REST_S", 0.2)
    async with ScriptedUpstream() as server:
        settings = UpstreamSettings(url=server.url, name="a")
        upstream = Upstream(settings, Permits(2), Meter("a", settings, 1), Clocks(), Health(HealthSettings()))
        head = [(b"content-length", b"0")]
        early, late = [await upstream.send("POST", "/chat/completions", head) for _ in range(2)]
        await early.read_all(1000)
        early.close()
        upstream.close()  # by the settings that were the last to know it; `late` still runs on older ones
        await late.read_all(1000)
        late.close()
        await server.wait_closed(within_s=2)
