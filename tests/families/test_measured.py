"""Every number that real vLLM servers gave, predicted from the facts alone.

`measured.json` is written by tests/conformance/test_tokens.py: facts of the media, options of the request,
and what the server counted.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dabom.families import FAMILIES, Cost, Family, Options, VideoFacts, read_options

_CASES: list[dict[str, Any]] = json.loads(
    Path(__file__).with_name("measured.json").read_text(encoding="utf-8")
)


def _cost(family: Family, item: dict[str, Any], options: Options) -> Cost:
    facts = {key: value for key, value in item.items() if key != "kind"}
    if item["kind"] == "video":
        return family.video(VideoFacts(**facts), options)
    if item["kind"] == "audio":
        return family.audio(facts["audio_samples"], facts["audio_rate"])
    return family.image(facts["width"], facts["height"], options)


@pytest.mark.parametrize("case", [pytest.param(case, id=case["case"]) for case in _CASES])
def test_the_prediction_is_what_the_server_counted(case: dict[str, Any]) -> None:
    family, options = FAMILIES[case["family"]], read_options(case["processor"], case["loader"])
    costs = [_cost(family, item, options) for item in case["items"]]
    refusal = next((cost.refusal for cost in costs if cost.refusal is not None), None)
    if case["status"] != 200:
        assert refusal is not None
        assert refusal.status == case["status"]
        return
    tokens: Counter[str] = Counter()
    for cost in costs:
        tokens.update(cost.tokens)
    assert (refusal, dict(tokens)) == (None, case["tokens"])
    assert sum(cost.prompt_tokens for cost in costs) == case["prompt_tokens"]


def test_there_are_enough_cases_of_three_families() -> None:
    families = Counter(case["family"] for case in _CASES)
    assert len(families) == 3
    assert min(families.values()) >= 50
    assert sum(families.values()) >= 150
