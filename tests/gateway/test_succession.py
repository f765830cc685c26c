"""What stays of an upstream when settings are loaded anew."""

from __future__ import annotations

from typing import Any

import pytest

from dabom.gateway import Clocks, GatewaySettings, UpstreamSettings
from dabom.gateway.admission.settings import AdmissionSettings
from dabom.gateway.health import HealthSettings
from dabom.gateway.routing.settings import RoutingSettings
from dabom.gateway.succession import concurrency_of, same_server, unchanged

_URL = "http://gpu:8000/v1"
_ONE = UpstreamSettings(url=_URL, name="a", concurrency=3)


def _general(**changed: Any) -> GatewaySettings:
    return GatewaySettings(upstreams=(), **changed)


@pytest.mark.parametrize(
    ("upstream", "general", "same"),
    [
        ({}, {}, True),
        ({"concurrency": 9, "token_budget": 1000}, {}, True),
        ({}, {"concurrency": 9}, True),
        ({}, {"routing": RoutingSettings(models={"m": "a"})}, True),
        ({"model": "m"}, {}, False),
        ({"api_key": "sk"}, {}, False),
        ({"clocks": Clocks(idle_timeout_s=3)}, {}, False),
        ({"clocks": Clocks()}, {}, False),
        ({}, {"clocks": Clocks(idle_timeout_s=3)}, False),
        ({}, {"routing": RoutingSettings(health=HealthSettings(breaker_failures=9))}, False),
        ({}, {"admission": AdmissionSettings(default_answer_tokens=9)}, False),
        ({}, {"admission": AdmissionSettings(max_queue=9)}, True),
    ],
)
def test_only_permits_may_differ(upstream: dict[str, Any], general: dict[str, Any], same: bool) -> None:
    other = UpstreamSettings(**{"url": _URL, "name": "a", "concurrency": 3} | upstream)
    assert unchanged(other, _general(**general), _ONE, _general()) is same


def test_a_server_is_its_address() -> None:
    assert same_server(_ONE, UpstreamSettings(url=_URL, model="m"))
    assert not same_server(_ONE, UpstreamSettings(url="http://gpu:8001/v1", name="a"))


def test_an_upstreams_own_permits_win() -> None:
    assert concurrency_of(_ONE, _general(concurrency=9)) == 3
    assert concurrency_of(UpstreamSettings(url=_URL), _general(concurrency=9)) == 9
