"""Resident registration numbers (주민등록번호) and those of foreigners, which have the same form.

`YYMMDD-SNNNNNC`: a date, the sex and century, a number, and a check digit. Numbers given out since October
2020 have no check digit, so a wrong one proves nothing; a right one supports a number without its dash.
Source: 주민등록법 시행규칙 제2조.
"""

from __future__ import annotations

import re
from datetime import date
from typing import TYPE_CHECKING

from dabom.gateway.masking.detect import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

_NUMBER = re.compile(r"(?<![0-9])([0-9]{6})( ?- ?)?([0-9]{7})(?![0-9])")
_BEGUN = re.compile(r"(?<![0-9])(?:[0-9]{1,13}|[0-9]{6} ?(?:- ?[0-9]{0,7})?)\Z")
_LABEL = re.compile(r"주민|외국인등록|거소신고|resident registration|RRN", re.IGNORECASE)
_LABEL_CHARS = 30
_WEIGHTS = (2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5)
_CENTURIES = {"9": 1800, "0": 1800, "1": 1900, "2": 1900, "5": 1900, "6": 1900}
"""By the sex digit; 3, 4, 7 and 8 are of this century."""


class ResidentNumber:
    """Masks the seven digits behind the date but the first: `900101-1******`.

    A number with its dash is one when its date exists. Without, it also needs a right check digit or a label
    such as 주민등록번호 in the 30 characters before: every seventieth number of 13 digits would be one.
    """

    kind = "resident_number"
    longest = 6 + 3 + 7

    def find(self, text: str) -> Iterator[Finding]:
        """All numbers in folded text."""
        for found in _NUMBER.finditer(text):
            digits = found[1] + found[3]
            if _is_date(digits) and (found[2] or _checks(digits) or _labelled(text, found.start())):
                yield Finding(found.start(), found.end(), (found.start(3) + 1, found.end(3)))

    def pending(self, text: str) -> int:
        """Where digits stand at the end that may become a number."""
        begun = _BEGUN.search(text, max(0, len(text) - self.longest - 1))
        return len(text) if begun is None else begun.start()


def _is_date(digits: str) -> bool:
    century = _CENTURIES.get(digits[6], 2000)
    try:
        date(century + int(digits[:2]), int(digits[2:4]), int(digits[4:6]))
    except ValueError:
        return False
    return True


def _checks(digits: str) -> bool:
    weighed = sum(weight * int(digit) for weight, digit in zip(_WEIGHTS, digits, strict=False))
    base = 13 if digits[6] in "5678" else 11  # foreigners' check digits are two more
    return (base - weighed % 11) % 10 == int(digits[12])


def _labelled(text: str, start: int) -> bool:
    return _LABEL.search(text, max(0, start - _LABEL_CHARS), start) is not None
