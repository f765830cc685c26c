"""A picture counts while questions about it are likely, and not for ever."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from dabom.gateway.routing.settings import Modality
from dabom.gateway.routing.turns import modalities

NOTHING = frozenset[Modality]()


@dataclass(frozen=True)
class Said:
    role: str
    kinds: frozenset[Modality] = NOTHING


def conversation(text: str) -> list[Said]:
    """`u` a user, `a` an assistant, `t` a tool, `s` the system; in capitals with a picture."""
    roles = {"u": "user", "a": "assistant", "t": "tool", "s": "system"}
    return [
        Said(roles[letter.lower()], frozenset({"image"}) if letter.isupper() else NOTHING) for letter in text
    ]


@pytest.mark.parametrize(
    ("messages", "turns", "needed"),
    [
        ("U", 1, True),
        ("Uau", 1, False),
        ("Uau", 2, True),  # "and what is the date on it?"
        ("Uauau", 3, True),
        ("Uauauau", 3, False),  # they talk of something else by now
        ("Uauauau", 100, True),
        ("uauauaU", 1, True),
        ("uatTa", 1, True),  # a tool's result belongs to the turn that asked for it
        ("uatatTatata", 1, True),
        ("uatTauau", 1, False),
        ("uAuau", 1, False),
        ("Suauau", 1, True),  # an example in the instructions
        ("suauau", 1, False),
        ("Ta", 1, True),  # nobody has spoken yet
        ("", 1, False),
    ],
)
def test_which_turns_count(messages: str, turns: int, needed: bool) -> None:
    now, old = modalities(conversation(messages), turns)
    assert ("image" in now) is needed
    assert ("image" in old) is (not needed and any(letter.isupper() for letter in messages))


def test_what_counts_anyway_is_not_old() -> None:
    messages = [Said("user", frozenset({"image", "audio"})), Said("user", frozenset({"image"}))]
    assert modalities(messages, 1) == (frozenset({"image"}), frozenset({"audio"}))
