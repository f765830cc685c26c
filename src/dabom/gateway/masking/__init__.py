"""Personal data is masked in answers before a client gets them: whole answers, and streams as they come.

The detectors are a plug: see `Detector`. `Masking` is what the gateway has when any of them is switched on.
"""

from dabom.gateway.masking.answer import AnswerMask, Masking, MaskNames, ask_plain
from dabom.gateway.masking.detect import Detector, Finding, fold
from dabom.gateway.masking.resident import ResidentNumber
from dabom.gateway.masking.text import TextStream, mask_text

__all__ = [
    "AnswerMask",
    "Detector",
    "Finding",
    "MaskNames",
    "Masking",
    "ResidentNumber",
    "TextStream",
    "ask_plain",
    "fold",
    "mask_text",
]
