"""What the sections of a file become: upstreams, routes, models, rules, clocks and limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dabom.app import load_settings, read_settings

if TYPE_CHECKING:
    from tests.app.config.conftest import Write

    from dabom.gateway import GatewaySettings

_FLEET = """
clocks:
  idle_timeout_s: 40
  connect_timeout_s: 3
limits:
  max_batch_items: 9
upstreams:
  - {name: a, url: 'http://a/v1', clocks: {idle_timeout_s: 7}}
  - {name: b, url: 'http://b/v1', model: served-b}
  - {name: c, url: 'http://c/v1', modalities: [image]}
"""


def _gateway(write: Write, text: str) -> GatewaySettings:
    return load_settings(write(_FLEET + text)).gateway()


def test_sections_and_flat_names_are_one(write: Write) -> None:
    gateway = _gateway(write, "total_timeout_s: 50\n")
    assert (gateway.clocks.idle_timeout_s, gateway.clocks.connect_timeout_s) == (40, 3)
    assert (gateway.clocks.total_timeout_s, gateway.limits.max_batch_items) == (50, 9)


def test_clocks_of_an_upstream_keep_what_they_do_not_name(write: Write) -> None:
    first, second, _ = _gateway(write, "").upstreams
    assert first.clocks is not None
    assert (first.clocks.idle_timeout_s, first.clocks.connect_timeout_s) == (7, 3)
    assert first.clocks.total_timeout_s == 600
    assert second.clocks is None


@pytest.mark.parametrize(
    ("written", "steps"),
    [
        ("a", (("a",),)),
        ("[a, b]", (("a",), ("b",))),
        ("[[a, b], c]", (("a", "b"), ("c",))),
        ("{steps: [[a, b], c]}", (("a", "b"), ("c",))),
        ("[pair, c]", (("a", "b"), ("c",))),
        ("[chain, c]", (("a",), ("b",), ("c",))),
        ("[[pair, c]]", (("a", "b", "c"),)),
        ("[again, c]", (("b",), ("c",))),
    ],
)
def test_routes_are_written_short_or_long(
    write: Write, written: str, steps: tuple[tuple[str, ...], ...]
) -> None:
    text = f"routes:\n  r: {written}\n  pair: [[a, b]]\n  chain: [a, b]\nmodels: {{again: b}}\n"
    assert _gateway(write, text).routing.routes["r"].steps == steps


def test_a_route_may_begin_with_the_upstream_of_its_name(write: Write) -> None:
    routing = _gateway(write, "models:\n  a: [a, b]\n").routing
    assert routing.models == {"a": "a"}
    assert routing.routes["a"].steps == (("a",), ("b",))


def test_a_model_may_stand_for_a_model_or_a_served_name(write: Write) -> None:
    models = _gateway(write, "models:\n  x: y\n  y: z\n  z: a\n  s: served-b\n").routing.models
    assert models == {"x": "a", "y": "a", "z": "a", "s": "served-b"}


def test_rules_are_written_short_or_long(write: Write) -> None:
    routing = _gateway(
        write,
        """
auto:
  - image fast: a
  - image, video + audio: [a, b]
  - thinking: b
  - {route: c, modalities: [file]}
  - any: c
""",
    ).routing
    assert [(rule.route, rule.modalities, rule.tasks) for rule in routing.auto] == [
        ("a", {"image"}, {"fast"}),
        ("auto-image-video-audio", {"image", "video", "audio"}, None),
        ("b", None, {"thinking"}),
        ("c", {"file"}, None),
        ("c", None, None),
    ]
    assert routing.routes["auto-image-video-audio"].steps == (("a",), ("b",))


def test_a_rule_that_no_request_reaches_is_warned_of(write: Write) -> None:
    text = "auto:\n  - image: a\n  - text: b\n  - image fast: c\n  - any: a\n  - video: a\n"
    file = write(_FLEET + text)
    warnings = tuple(map(str, read_settings(file).warnings))
    first = len((_FLEET + text).lstrip("\n").splitlines()) - 5
    assert warnings == (
        f"{file}, line {first + 3}: no request reaches rule 3 of auto; rule 1 takes them all",
        f"{file}, line {first + 5}: no request reaches rule 5 of auto; rule 4 takes them all",
    )


def test_a_key_for_a_name_that_nobody_has_is_warned_of(write: Write) -> None:
    key = f"keys:\n  - id: k\n    hash: sha256:{'1' * 64}\n    routes: [a, served-b, auto-fast, nobody]\n"
    (warning,) = map(str, read_settings(write(_FLEET + key)).warnings)
    assert warning.endswith("the key k is for nobody, which no model or route is called")


def test_the_rest_of_the_routing_is_passed_on(write: Write) -> None:
    routing = _gateway(write, "default_route: c\naffinity_margin_tokens: 5\n").routing
    assert (routing.default_route, routing.affinity_margin_tokens) == ("c", 5)


def test_an_upstream_that_names_its_port_can_be_named(write: Write) -> None:
    text = "upstreams:\n  - url: http://gpu:8000/v1\nmodels:\n  m: gpu:8000\n"
    assert load_settings(write(text)).gateway().routing.models == {"m": "gpu:8000"}


def test_the_upstream_of_the_environment_can_be_named(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_BASE_URL", "http://gpu:8000/v1")
    assert load_settings(write(_FLEET + "models: {m: 'gpu:8000'}\n")).gateway().upstreams[0].name == ""
