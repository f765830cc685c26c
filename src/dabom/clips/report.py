"""The report of a run: one HTML file that needs no network and no other file.

Everything that a model or a file name says is escaped.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote

from dabom.client import AnalysisResult
from dabom.clips.checks import FAILING, NOTES
from dabom.clips.report_style import SCRIPT, STYLE
from dabom.clips.report_words import Language, code_words, say
from dabom.clips.results import busy_s

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from dabom.clips.results import Result
    from dabom.store import Run

_WORST = 12
_SUSPICIOUS = frozenset(FAILING) | (frozenset(NOTES) - {"sound_unproven", "no_sound_track"})


@dataclass(frozen=True, slots=True)
class Seen:
    """What is shown of a clip: a strip of frames, and where a player finds it; either may be missing."""

    strip: bytes | None = None
    link: str | None = None


Look: TypeAlias = Callable[["Result"], Seen]


def report(
    run: Run, results: Sequence[Result], told: Mapping[str, Any], look: Look, language: Language
) -> Iterator[str]:
    """The page in pieces. `told` is the run's summary; `look` is asked once for each item."""
    title = f"{say('title', language)} · {run.id}"
    yield (
        f'<!doctype html><html lang="{language}"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<style>{STYLE}</style></head><body><h1>{escape(title)}</h1>"
    )
    yield from _facts(run, language)
    yield from _totals(told, language)
    yield from _categories(told, language)
    yield from _codes(told, language)
    yield from _times(results, language)
    yield from _controls(told, language)
    yield from _worst(results, language)
    yield from _gallery(results, look, language)
    yield f"<script>{SCRIPT}</script></body></html>\n"


def _facts(run: Run, language: Language) -> Iterator[str]:
    began = datetime.fromtimestamp(run.created_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    rows = {
        "model": run.model,
        "protocol": run.protocol,
        "server": run.server,
        "began": began,
        "prompt": str(run.settings.get("prompt", "")),
        "prompt_sha256": run.prompt_sha256[:16],
        "schema_sha256": run.schema_sha256[:16],
        "version": run.version,
    }
    inner = "".join(f"<dt>{say(key, language)}</dt><dd>{escape(text)}</dd>" for key, text in rows.items())
    yield f'<dl class="facts">{inner}</dl>'


def _totals(told: Mapping[str, Any], language: Language) -> Iterator[str]:
    latency = told["latency_ms"]
    cards = [
        ("items", f"{told['items']:,}"),
        ("done", f"{told['done']:,}"),
        ("failed", f"{told['failed']:,}"),
        ("open", f"{told['open']:,}"),
        ("attempts", f"{told['attempts']:,}"),
        ("a_minute", f"{told['clips_a_minute'] or 0:,.1f}"),
        ("prompt_tokens", f"{told['tokens']['prompt_tokens']:,}"),
        ("completion_tokens", f"{told['tokens']['completion_tokens']:,}"),
    ]
    inner = "".join(f"<div><b>{text}</b><span>{say(key, language)}</span></div>" for key, text in cards)
    inner += "".join(f"<div><b>{value:,.0f}</b><span>{key} ms</span></div>" for key, value in latency.items())
    yield f'<div class="cards">{inner}</div>'


def _categories(told: Mapping[str, Any], language: Language) -> Iterator[str]:
    heads = [say(key, language) for key in ("category", "clips", "done", "failed", "open", "success")]
    rows = [
        [
            escape(row["category"]),
            *(f"{row[key]:,}" for key in ("clips", "done", "failed", "open")),
            _rate(row),
            *(f"{row['latency_ms'].get(key, 0):,.0f}" for key in ("p50", "p90", "p99")),
        ]
        for row in told["categories"]
    ]
    yield f"<h2>{say('by_category', language)}</h2>"
    yield _table([*heads, "p50 ms", "p90 ms", "p99 ms"], rows)


def _codes(told: Mapping[str, Any], language: Language) -> Iterator[str]:
    yield f"<h2>{say('codes', language)}</h2>"
    if not told["codes"]:
        yield f'<p class="good">{say("no_codes", language)}</p>'
        return
    categories = told["categories"]
    heads = [
        say("code", language),
        say("all", language),
        *(escape(row["category"]) for row in categories),
        say("controls", language),
    ]
    rows = []
    for code, count in told["codes"].items():
        clips = [row["codes"].get(code, 0) for row in categories]
        told_in = code_words(code, 0 if language == "ko" else 1)
        rows.append([escape(told_in), *(str(number) for number in (count, *clips, count - sum(clips)))])
    yield _table(heads, rows)


def _times(results: Sequence[Result], language: Language) -> Iterator[str]:
    counted = [result.attempt for result in results if result.attempt is not None]
    batch_s, sequential_s = busy_s(counted), sum(attempt.elapsed_ms for attempt in counted) / 1000
    if len(counted) < 2 or not batch_s or not sequential_s:
        return
    yield f"<h2>{say('times', language)}</h2>"
    most = max(batch_s, sequential_s)
    for key, seconds in (("sequential", sequential_s), ("batch", batch_s)):
        yield f"<div>{say(key, language)}: {seconds:,.1f} {say('seconds', language)}</div>"
        yield f'<div class="track"><div class="bar" style="width:{100 * seconds / most:.1f}%"></div></div>'
    yield f"<p><b>{say('ratio', language).format(ratio=sequential_s / batch_s)}</b></p>"
    yield f'<p class="dim">{say("times_note", language)}</p>'


def _controls(told: Mapping[str, Any], language: Language) -> Iterator[str]:
    if not told["controls"]:
        return
    yield f"<h2>{say('controls', language)}</h2>"
    heads = [say(key, language) for key in ("control", "claim", "category", "rate")]
    rows = [
        [
            escape(row["control"]),
            say(row["claim"], language),
            escape(row["category"]) or say("all", language),
            f"{row['count']}/{row['total']} · {_rate(row)}",
        ]
        for row in told["controls"]
    ]
    yield _table(heads, rows)


def _worst(results: Sequence[Result], language: Language) -> Iterator[str]:
    yield f"<h2>{say('worst', language)}</h2>"
    bad = sorted((result for result in results if _weight(result)), key=_weight, reverse=True)
    if not bad:
        yield f'<p class="good">{say("none_bad", language)}</p>'
        return
    lines = (
        f'<li><a href="#i{result.item.position}">{escape(result.item.name)}</a>'
        f" {_tags(result, language)}</li>"
        for result in bad[:_WORST]
    )
    yield f"<ol>{''.join(lines)}</ol>"


def _weight(result: Result) -> int:
    """How much an item should be looked at; 0 for not at all."""
    suspicious = sum(code in _SUSPICIOUS for code in result.codes)
    return 100 * (result.item.state == "failed") + 50 * (result.claims is True) + suspicious


def _gallery(results: Sequence[Result], look: Look, language: Language) -> Iterator[str]:
    yield f"<h2>{say('gallery', language)}</h2>"
    yield _choice("category", sorted({result.item.category for result in results}), language)
    yield _choice("state", ["done", "failed", "open"], language)
    yield '<div class="gallery">'
    for result in results:
        yield _card(result, look(result), language)
    yield "</div>"


def _choice(name: str, values: Iterable[str], language: Language) -> str:
    shown = {value: say(value, language) if name == "state" else escape(value) for value in values}
    options = "".join(f'<option value="{escape(value)}">{text}</option>' for value, text in shown.items())
    head = say("category" if name == "category" else "show", language)
    every = say("everything", language)
    return f'<label>{head} <select name="{name}"><option value="">{every}</option>{options}</select></label>'


def _card(result: Result, seen: Seen, language: Language) -> str:
    item = result.item
    head = f'<div class="none">{say("no_picture", language)}</div>'
    if seen.strip is not None:
        uri = f"data:image/jpeg;base64,{b64encode(seen.strip).decode()}"
        head = f'<img alt="" src="{uri}">'
    if seen.link is not None and not item.control:
        head += f'<video controls preload="none" src="{escape(quote(seen.link))}"></video>'
    span = ""
    if item.facts.get("end_s"):
        span = f' <span class="dim">{item.facts["start_s"]:g}-{item.facts["end_s"]:g} s</span>'
    return (
        f'<div class="item" id="i{item.position}" data-category="{escape(item.category)}"'
        f' data-state="{item.state}">{head}<div class="body"><h3>{escape(item.name)}{span}</h3>'
        f"<div>{_tags(result, language)}</div>{_said(result, language)}</div></div>"
    )


def _tags(result: Result, language: Language) -> str:
    state = {"done": "good", "failed": "bad", "open": "dim"}[result.item.state]
    tags = [(say(result.item.state, language), state)]
    if result.claims:
        tags.append((say("claims", language), "bad"))
    codes = dict.fromkeys((*([result.item.code] if result.item.code else []), *result.codes))
    tags += [(code, "bad" if code == result.item.code else "note") for code in codes]
    return "".join(f'<span class="tag {kind}">{escape(text)}</span>' for text, kind in tags)


def _said(result: Result, language: Language) -> str:
    attempt = result.attempt
    if attempt is None:
        return ""
    if error := attempt.usage.get("error"):
        return f'<p class="bad">{escape(str(error))}</p>'
    fields = AnalysisResult.__struct_fields__
    value = result.value
    if isinstance(value, dict) and set(value) == set(fields):
        said = "".join(
            f"<p><b>{say(name, language)}</b> {escape(str(value[name])) or '–'}</p>" for name in fields
        )
    else:
        said = f"<p><b>{say('answer', language)}</b> {escape(result.text)}</p>"
    if attempt.raw != attempt.text:
        raw = f"<pre>{escape(attempt.raw)}</pre>"
        said += f"<details><summary>{say('raw', language)}</summary>{raw}</details>"
    return said


def _rate(row: Mapping[str, Any]) -> str:
    return f"{row['rate']:.0%} ({row['low']:.0%}-{row['high']:.0%})"


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{name}</th>" for name in heads)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
