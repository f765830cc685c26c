"""Writes the generated pages of docs from the code; `--check` only says whether they are current."""

from __future__ import annotations

import argparse
import inspect
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import AliasChoices, BaseModel

from dabom import errors
from dabom.app import Settings
from dabom.app.config.shape import fields_at
from dabom.errors import DabomError
from dabom.gateway import Clocks, Limits, Metrics
from dabom.gateway.metrics import LABELS
from dabom.gateway.routing.settings import RoutingSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pydantic.fields import FieldInfo

    from dabom.app.config.document import Place

DOCS = Path(__file__).parents[1] / "docs"

# What the reader of an error can do about it, by code. Each code of the tree needs a line.
REMEDIES = {
    "internal_error": "Report it with the answer's `X-Request-Id` and the log line of the same id.",
    "invalid_request": "Read the message: it names what was found and what is allowed.",
    "invalid_json": "Send one well-formed JSON object in UTF-8.",
    "invalid_media": "Send a file that opens in a player, as a `data:` URL with the right MIME type.",
    "media_unsupported": "Send one still picture as PNG, JPEG or WebP; what moves as a clip (`video_url`). "
    "Cut from a copy of the recording whose sound is AAC or PCM.",
    "media_mismatch": "Name the type that the bytes have, in a part of that kind.",
    "media_too_large": "Send a smaller picture or fewer of them, or raise the limits of `media`.",
    "url_refused": "Send the bytes as a `data:` URL, or let `media.allow` name the host.",
    "unauthorized": "Send `Authorization: Bearer KEY` with a key that is configured.",
    "key_expired": "Ask the operator for a new key; `dabom keys new` makes one.",
    "route_forbidden": "Ask for a model that the message names, or have `routes` of the key extended.",
    "too_many_requests": "Wait for the seconds in `Retry-After`.",
    "rate_limited": "Wait for the seconds in `Retry-After`, or have the limits of the key raised.",
    "queue_full": "Try again after `Retry-After`: it is the time in which the line drains.",
    "key_concurrency": "Wait until an answer of yours is whole, or have `concurrency` of the key raised.",
    "not_found": "Compare the path with `/docs`.",
    "model_not_found": "Ask `GET /v1/models` for the names that are served.",
    "modality_not_served": "Ask for a model that takes it, or let an operator add a rule of `auto` for it.",
    "method_not_allowed": "Use the method that the `Allow` header names.",
    "upload_timeout": "Send the body without pauses; raise `upload_idle_timeout_s` for slow lines.",
    "header_timeout": "Send the whole head at once; raise `header_timeout_s` for slow lines.",
    "prompt_too_long": "Do what the message says: a shorter or smaller clip, smaller pictures, less text, or "
    "a lower `max_tokens`.",
    "body_too_large": "Send a smaller clip or picture, or raise `max_body_bytes`.",
    "batch_too_large": "Split the batch, or send it as `application/x-ndjson`, which has no limit in all.",
    "too_many_items": "Split the batch, send it as `application/x-ndjson`, or raise `MAX_BATCH_ITEMS`.",
    "unsupported_media_type": "Send `Content-Type: application/json`; a batch may be `application/x-ndjson`.",
    "reload_refused": "Correct the lines that the message names; `dabom check` finds them beforehand.",
    "headers_too_large": "Send fewer or shorter headers, or raise `max_header_bytes`.",
    "upstream_unreachable": "Start the upstream or correct its address; `/readyz` shows each one's state.",
    "upstream_broken": "Look into the upstream's log: it closed the connection or spoke no HTTP.",
    "connect_timeout": "Check the network to the upstream, or raise `connect_timeout_s`.",
    "first_byte_timeout": "The upstream is slow or hangs: send less at once or raise `first_byte_timeout_s`.",
    "idle_timeout": "The upstream stopped in the middle of an answer: look into its log; try again.",
    "total_timeout": "Ask for fewer tokens, or raise `VLLM_TIMEOUT_SECONDS`.",
    "unavailable": "Try again after the seconds in `Retry-After`.",
    "queue_timeout": "Try again after `Retry-After`; send fewer requests at once, or add an upstream.",
    "audit_unavailable": "Free the disk or start the database of the audit; see [audit](audit.md).",
    "draining": "Try again: the gateway is being restarted.",
    "client_gone": "Nothing: it is for logs; the client left before its answer was whole.",
    "invalid_config": "Correct the setting that the message names; see [settings](settings.md).",
    "start_failed": "Read the log that the message names; its last lines say why.",
    "store_failed": "Read the message: it names the database or the folder, and what it answered.",
    "store_too_new": "Use the Dabom that wrote the database, or a newer one.",
    "ask_failed": "Read the message: it names the endpoint and what happened.",
    "connect_failed": "Check the URL that the command was given and that a server listens there.",
    "answer_broken": "Try again; when it stays, look into the log of the endpoint.",
    "answer_timeout": "Raise the client's timeout, or look into why the endpoint is slow.",
}


def error_tree(top: type[DabomError] = DabomError, depth: int = 0) -> Iterator[tuple[type[DabomError], int]]:
    yield top, depth
    for inner in top.__subclasses__():
        if inner.__module__ == errors.__name__:
            yield from error_tree(inner, depth + 1)


def errors_page() -> str:
    """One row per class of `dabom.errors`, in the order of the tree."""
    lines = [
        "# Errors",
        "",
        "Written by `make docs` from `dabom.errors`; do not edit.",
        "",
        "Every error answer of the gateway is JSON in OpenAI's shape.",
        "Programs compare `code`: it is stable, while a message may be reworded.",
        "",
        "```json",
        json.dumps(errors.TooManyItems("the batch has 129 items; the limit is 128").body()),
        "```",
        "",
        "Errors of an upstream are passed on as the upstream wrote them, with its status; one that is longer",
        "than `max_error_bytes` is cut. No message holds media or prompt text.",
        "",
        "| class | status | code | meaning | what to do |",
        "|---|---|---|---|---|",
    ]
    used = set()
    for kind, depth in error_tree():
        meaning = " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split())
        indent = "&nbsp;&nbsp;" * depth
        if kind is errors.Refused:
            lines.append(
                f"| {indent}`Refused` | the answer's | the answer's | {meaning} | Do what the message says. |"
            )
            continue
        used.add(kind.code)
        remedy = REMEDIES.get(kind.code) or sys.exit(f"gen_docs: REMEDIES has no line for {kind.code}")
        lines.append(f"| {indent}`{kind.__name__}` | {kind.status} | `{kind.code}` | {meaning} | {remedy} |")
    if stale := sorted(REMEDIES.keys() - used):
        sys.exit(f"gen_docs: REMEDIES has lines for codes that do not exist: {stale}")
    return "\n".join(lines) + "\n"


UNITS = {"_s": "seconds", "_items": "items"}

SETTINGS_HEAD = """# Settings

Written by `make docs` from `dabom.app.settings`; do not edit.

`dabom serve` takes each setting from the first place that has it: the command line (`--host`, `--port`), the
environment, a file `.env` in the working directory, the YAML file of `--config`, the default. A list or a
table in the environment is JSON. A wrong setting stops the start with exit code 2 and a line that names it.
How the file is written, with shorthand for routes and rules, is told in [configuration](configuration.md).

Without `VLLM_BASE_URL` and `upstreams`, the built-in reader is started as the upstream.
"""

UPSTREAMS_HEAD = """
## Several upstreams

Each entry of `upstreams` is one model server. A request goes to the one that serves its model.

```yaml
upstreams:
  - name: omni
    url: http://10.0.0.11:8000/v1
    concurrency: 8
  - name: text
    url: http://10.0.0.12:8000/v1
max_batch_items: 256
total_timeout_s: 900
```
"""

CLIENT_TAIL = """
## Commands that talk to a gateway

`dabom chat` reads `DABOM_URL` (the gateway, `http://127.0.0.1:8001` when unset) and `DABOM_API_KEY`.
"""


def shown_default(field: FieldInfo, unit: str) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return "below"
    if value is None or value in ((), "", {}, frozenset()):
        return "unset"
    if unit == "bytes":
        return f"{value / 2**20:g} MiB" if value >= 2**20 else f"{value / 2**10:g} KiB"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def unit_of(name: str) -> str:
    return "bytes" if "_bytes" in name else next((u for end, u in UNITS.items() if name.endswith(end)), "")


def environment_name(name: str, field: FieldInfo) -> str:
    alias = field.validation_alias
    first = alias.choices[0] if isinstance(alias, AliasChoices) else f"DABOM_{name.upper()}"
    return f"`{first}`"


def settings_page() -> str:
    """One row per field of the settings, then one table for each that holds settings itself."""
    lines = [SETTINGS_HEAD, "| name | environment | default | unit | meaning |", "|---|---|---|---|---|"]
    last = [*RoutingSettings.model_fields, *Clocks.model_fields, *Limits.model_fields]
    own = [name for name in Settings.model_fields if name not in last]
    for name in [*own, *last]:
        field = Settings.model_fields[name]
        unit, environment = unit_of(name), environment_name(name, field)
        lines.append(
            f"| `{name}` | {environment} | {shown_default(field, unit)} | {unit} | {meaning(name, field)} |"
        )
    for name in [*own, *last]:
        fields, title = inner_fields(name)
        if fields:
            lines += [UPSTREAMS_HEAD if name == "upstreams" else f"\n## {title}\n"]
            lines += ["| name | default | meaning |", "|---|---|---|"]
            lines += [
                f"| `{inner}` | {shown_default(field, unit_of(inner))} | {meaning(inner, field)} |"
                for inner, field in fields.items()
            ]
    return "\n".join([*lines, CLIENT_TAIL])


def inner_fields(name: str) -> tuple[Mapping[str, FieldInfo] | None, str]:
    """The settings inside of a setting, and what the page calls them."""
    places: tuple[tuple[Place, str], ...] = (
        ((name,), f"`{name}`"),
        ((name, 0), f"Each entry of `{name}`"),
        ((name, "a name"), f"Each entry of `{name}`"),
    )
    return next(
        ((fields, title) for place, title in places if (fields := fields_at(Settings, place))), (None, "")
    )


def meaning(name: str, field: FieldInfo) -> str:
    return field.description or sys.exit(f"gen_docs: the setting {name} has no description")


METRICS_HEAD = """# Metrics

Written by `make docs` from `dabom.gateway.metrics`; do not edit.

`GET /metrics` is Prometheus' text format. It asks for a key like any other page; the admin's key does too.
Labels come from the settings or from fixed lists: no client can make a new series. A family that has 2,000
series all the same counts the rest as `other`.

A counter is shown with `_total`, a histogram with `_bucket`, `_sum` and `_count`.
"""

METRICS_TAIL = """
## Worth an alert

```yaml
groups:
- name: dabom
  rules:
  - alert: BreakerOpen
    expr: dabom_breaker_state == 2
    for: 1m
  - alert: QueueIsLong
    expr: histogram_quantile(0.9, sum by (le, upstream) (rate(dabom_queue_seconds_bucket[5m]))) > 30
  - alert: FirstByteIsLate
    expr: |
      histogram_quantile(0.9, sum by (le, upstream) (
        rate(dabom_first_byte_seconds_bucket{modality=~"image|video"}[5m]))) > 10
  - alert: CostsAreGuessedWrong
    expr: |
      rate(dabom_prompt_tokens_ratio_sum{modality!="text"}[1h]) /
        rate(dabom_prompt_tokens_ratio_count{modality!="text"}[1h]) < 0.9 or
      rate(dabom_prompt_tokens_ratio_sum{modality!="text"}[1h]) /
        rate(dabom_prompt_tokens_ratio_count{modality!="text"}[1h]) > 1.1
  - alert: AuditIsNotWritten
    expr: rate(dabom_audit_records_total{outcome!="written"}[5m]) > 0
```
"""


def metrics_page() -> str:
    """One row per family, then one per label."""
    lines = [METRICS_HEAD, "| name | kind | labels | meaning |", "|---|---|---|---|"]
    used: list[str] = []
    for series in Metrics().all():
        end = "_total" if series.kind == "counter" else ""
        shown = ", ".join(f"`{label}`" for label in series.labels)
        lines.append(f"| `{series.name}{end}` | {series.kind} | {shown} | {series.what} |")
        used += series.labels
    lines += ["", "| label | values |", "|---|---|"]
    for label in dict.fromkeys(used):
        lines.append(f"| `{label}` | {LABELS.get(label) or sys.exit(f'gen_docs: no words for {label}')} |")
    return "\n".join(lines) + "\n" + METRICS_TAIL


def pages() -> dict[str, str]:
    return {"errors.md": errors_page(), "metrics.md": metrics_page(), "settings.md": settings_page()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 when a page is not current"
    )
    check = parser.parse_args().check
    stale = []
    for name, text in pages().items():
        path = DOCS / name
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if not check:
            path.write_text(text, encoding="utf-8")
            print(f"wrote docs/{name}")
    if check and stale:
        print(f"not current: {', '.join(stale)}; run `make docs`", file=sys.stderr)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
