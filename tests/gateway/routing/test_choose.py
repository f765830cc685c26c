"""Where a request goes, by its model name, by what it holds and by what it asks for."""

from __future__ import annotations

import pytest

from dabom.errors import ModalityNotServed, ModelNotFound
from dabom.gateway.routing import Decision, Need, Target, choose_route, model_names
from dabom.gateway.routing.settings import AutoRule, Modality, RouteSettings, RoutingSettings, Task

IMAGE, VIDEO, AUDIO = (frozenset[Modality]({kind}) for kind in ("image", "video", "audio"))
SEEING = IMAGE | VIDEO
NOTHING = frozenset[Modality]()

FLEET = {
    "mac": Target("mac", NOTHING, frozenset({"qwen3-14b-mlx"})),
    "text": Target("text", NOTHING, frozenset({"qwen3-30b"})),
    "vl30": Target("vl30", SEEING, frozenset({"qwen3-vl-30b"})),
    "vl8a": Target("vl8a", SEEING, frozenset({"qwen3-vl-8b"})),
    "vl8b": Target("vl8b", SEEING, frozenset({"qwen3-vl-8b"})),
}


def rule(route: str, modalities: frozenset[Modality] | None = None, *tasks: Task) -> AutoRule:
    return AutoRule(route=route, modalities=modalities, tasks=frozenset(tasks) or None)


def routes(**steps: tuple[tuple[str, ...], ...]) -> dict[str, RouteSettings]:
    return {name: RouteSettings(steps=given) for name, given in steps.items()}


SEED = RoutingSettings(
    models={"vision-auto": "vision", "qwen3-vl-30b": "vl30", "office": "chat", "qwen3-30b": "text"},
    routes=routes(
        vision=(("vl30",), ("vl8a", "vl8b")),
        realtime=(("vl8a", "vl8b"),),
        chat=(("mac",), ("text",)),
        thinking=(("text",),),
        coding=(("vl30",),),
    )
    | {"small": RouteSettings(steps=(("vl8a",),), max_pixels=802_816)},
    auto=(
        rule("realtime", SEEING, "fast"),
        rule("coding", None, "coding"),
        rule("vision", None, "agent"),
        rule("vision", SEEING),
        rule("thinking", None, "thinking", "precise"),
        rule("chat"),
    ),
)


def decide(
    model: str | None, *modalities: Modality, thinking: bool = False, settings: RoutingSettings = SEED
) -> Decision:
    return choose_route(Need(model, frozenset(modalities), thinking=thinking), settings, FLEET)


CHAT, THINKING = (("mac",), ("text",)), (("text",),)
VISION, REALTIME, CODING = (("vl30",), ("vl8a", "vl8b")), (("vl8a", "vl8b"),), (("vl30",),)
TABLE = [
    ("auto", (), False, CHAT),
    ("auto-fast", (), False, CHAT),
    ("auto", (), True, THINKING),
    ("auto-thinking", (), False, THINKING),
    ("auto-precise", (), False, THINKING),
    ("auto", ("image",), False, VISION),
    ("auto-precise", ("image",), False, VISION),
    ("auto", ("video", "image"), False, VISION),
    ("auto", ("image",), True, VISION),
    ("auto-fast", ("image",), False, REALTIME),
    ("auto-fast", ("image",), True, REALTIME),
    ("agent", ("image",), False, VISION),
    ("auto-agent", (), False, VISION),
    ("coding", ("image",), False, CODING),
    ("auto-coding", ("image",), True, CODING),
    (None, ("image",), False, VISION),
    (None, (), True, THINKING),
]


@pytest.mark.parametrize(("model", "modalities", "thinking", "steps"), TABLE)
def test_the_table_of_auto(
    model: str | None,
    modalities: tuple[Modality, ...],
    thinking: bool,
    steps: tuple[tuple[str, ...], ...],
) -> None:
    found = decide(model, *modalities, thinking=thinking)
    assert (found.steps, found.reason) == (steps, "auto")


@pytest.mark.parametrize(
    ("model", "modalities", "steps"),
    [
        ("vision-auto", ("image",), VISION),
        ("vision-auto", (), VISION),
        ("qwen3-vl-30b", ("video",), CODING),
        ("qwen3-30b", (), THINKING),
        ("office", (), CHAT),
        ("qwen3-14b-mlx", (), (("mac",),)),  # by the name that the upstream serves
        ("qwen3-vl-8b", ("image",), REALTIME),  # all that serve it are replicas
    ],
)
def test_a_known_name_is_respected(
    model: str, modalities: tuple[Modality, ...], steps: tuple[tuple[str, ...], ...]
) -> None:
    found = decide(model, *modalities)
    assert (found.route, found.steps, found.reason) == (model, steps, "model")


def test_enable_thinking_does_not_change_what_a_name_means() -> None:
    assert decide("office", thinking=True).steps == CHAT


@pytest.mark.parametrize("model", ["office", "qwen3-30b", "qwen3-14b-mlx"])
def test_a_model_that_sees_nothing_gives_way_to_the_route_of_the_modality(model: str) -> None:
    found = decide(model, "image")
    assert (found.route, found.steps, found.reason) == ("vision", VISION, "modality")


def test_only_those_that_can_take_it_are_left_of_a_route() -> None:
    mixed = RoutingSettings(models={"m": "r"}, routes=routes(r=(("mac", "vl8a"), ("text",), ("vl30",))))
    assert decide("m", settings=mixed).steps == (("mac", "vl8a"), ("text",), ("vl30",))
    found = decide("m", "image", settings=mixed)
    assert (found.steps, found.reason) == ((("vl8a",), ("vl30",)), "model")


def test_a_rule_that_leads_to_nobody_who_can_take_it_is_passed_over() -> None:
    settings = RoutingSettings(auto=(rule("mac", IMAGE), rule("vl30")))
    assert decide("auto", "image", settings=settings).steps == (("vl30",),)


@pytest.mark.parametrize("model", ["auto", "office", "vision-auto", "qwen3-vl-8b", None])
def test_what_nobody_takes_is_refused_with_its_name(model: str | None) -> None:
    with pytest.raises(ModalityNotServed, match="audio"):
        decide(model, "audio")


@pytest.mark.parametrize("model", ["gpt-4o", "", "AUTO", "vision", "vl30"])
def test_an_unknown_name_is_not_found(model: str) -> None:
    """Names of routes and upstreams are for the configuration; a request gives names of models."""
    with pytest.raises(ModelNotFound) as refused:
        decide(model)
    assert refused.value.message.startswith(f"The model `{model}` does not exist")
    assert all(name in refused.value.message for name in ("office", "auto-fast", "qwen3-vl-8b"))


def test_an_unknown_name_is_cut_in_the_message() -> None:
    with pytest.raises(ModelNotFound) as refused:
        decide("x" * 5000)
    assert "x" * 128 in refused.value.message
    assert "x" * 129 not in refused.value.message


def test_an_unknown_name_goes_the_default_way() -> None:
    settings = SEED.model_copy(update={"default_route": "chat"})
    found = decide("gpt-4o", settings=settings)
    assert (found.route, found.steps, found.reason) == ("chat", CHAT, "default")
    seen = decide("gpt-4o", "image", settings=settings)
    assert (seen.steps, seen.reason) == (VISION, "modality")


def test_auto_without_rules_is_a_name_like_any_other() -> None:
    with pytest.raises(ModelNotFound):
        decide("auto", settings=RoutingSettings())
    assert decide("auto", settings=RoutingSettings(default_route="text")).reason == "default"
    named = RoutingSettings(models={"coding": "mac"}, auto=SEED.auto, routes=SEED.routes)
    assert decide("coding", settings=named).steps == (("mac",),)


def test_without_rules_a_request_that_names_no_model_goes_to_all_that_can_take_it() -> None:
    assert decide(None, settings=RoutingSettings()).steps == (tuple(FLEET),)
    assert decide(None, "image", settings=RoutingSettings()).steps == (("vl30", "vl8a", "vl8b"),)


def test_a_rule_for_text_is_for_requests_that_hold_nothing_else() -> None:
    settings = RoutingSettings(auto=(rule("text", frozenset({"text"})), rule("vl30")))
    assert decide("auto", settings=settings).rule == 0
    assert decide("auto", "image", settings=settings).rule == 1


def test_a_rule_may_name_a_model_or_an_upstream() -> None:
    for name in ("office", "chat"):
        assert decide("auto", settings=SEED.model_copy(update={"auto": (rule(name),)})).steps == CHAT
    for name in ("qwen3-vl-8b", "realtime"):
        assert decide("auto", settings=SEED.model_copy(update={"auto": (rule(name),)})).steps == REALTIME


def test_an_upstream_that_says_nothing_of_modalities_takes_them_all() -> None:
    known = {"one": Target("one", None, frozenset({"m"}))}
    need = Need("m", SEEING | AUDIO | frozenset({"file"}))
    assert choose_route(need, RoutingSettings(), known).steps == (("one",),)


def test_the_limit_of_pictures_comes_with_the_route() -> None:
    settings = SEED.model_copy(update={"models": {"thumbnails": "small"}})
    assert decide("thumbnails", "image", settings=settings).max_pixels == 802_816


def test_the_names_that_may_be_given() -> None:
    names = model_names(SEED, FLEET)
    assert {"auto", "auto-thinking", "agent", "coding", "office", "vision-auto", "qwen3-vl-8b"} <= set(names)
    assert "auto" not in model_names(RoutingSettings(), FLEET)
