from __future__ import annotations

import inspect
import re

import pytest

from dabom import errors

DRAWN = re.compile(r"^[│├└─ ]*(?P<name>[A-Z]\w+) +(?P<status>\d{3}) (?P<code>\w+)", re.MULTILINE)


def tree(top: type[errors.DabomError] = errors.DabomError) -> list[type[errors.DabomError]]:
    return [
        top,
        *(
            inner
            for direct in top.__subclasses__()
            if direct.__module__ == errors.__name__
            for inner in tree(direct)
        ),
    ]


CLASSES = tree()


def test_the_tree_is_drawn_as_it_is() -> None:
    drawn = [(m["name"], int(m["status"]), m["code"]) for m in DRAWN.finditer(errors.__doc__ or "")]
    assert drawn == [(c.__name__, c.status, c.code) for c in CLASSES if c is not errors.Refused]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: str(kind.__name__))
def test_a_class_says_what_it_means(kind: type[errors.DabomError]) -> None:
    meaning = inspect.getdoc(kind)
    assert meaning
    assert meaning.endswith(".")
    assert re.fullmatch(r"[a-z][a-z_]+", kind.code)
    assert 400 <= kind.status < 600


def test_a_code_has_one_status() -> None:
    pairs = {(c.code, c.status) for c in CLASSES}
    assert len({code for code, _ in pairs}) == len(pairs)


def test_body_has_the_shape_of_openai() -> None:
    body = errors.TooManyItems("the batch has 129 items; the limit is 128", param="items").body()
    message = "the batch has 129 items; the limit is 128"
    assert body == {
        "error": {
            "message": message,
            "type": "invalid_request_error",
            "param": "items",
            "code": "too_many_items",
        }
    }


def test_refused_carries_the_answer_of_the_endpoint() -> None:
    refused = errors.Refused("no such model", status=404, code="model_not_found")
    assert (refused.status, refused.code) == (404, "model_not_found")
    assert errors.Refused("bad gateway", status=502, code=None).code == "refused"
