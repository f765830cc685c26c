from __future__ import annotations

import string

import pytest

from dabom.families.words import SENTENCES


@pytest.mark.parametrize("name", sorted(SENTENCES))
def test_both_languages_tell_the_same_numbers(name: str) -> None:
    fields = [
        sorted(part[1] for part in string.Formatter().parse(text) if part[1]) for text in SENTENCES[name]
    ]
    assert fields[0] == fields[1]
