"""Plays the simulation of docs/admission.md, prints its table and draws docs/images/admission.svg."""

from __future__ import annotations

from pathlib import Path
from statistics import mean, quantiles
from typing import TYPE_CHECKING

from dabom.gateway.admission import Line
from dabom.gateway.admission.simulation import Fifo, mixed, play

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dabom.gateway.admission.simulation import Served

PERMITS, BUDGET, COUNT, WITHIN_S, SEED = 8, 65_536, 200, 30.0, 1
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "admission.svg"
WIDTH, PANEL, LEFT, GAP = 760, 150, 56, 46
STYLE = "text{font:12px sans-serif}.head{font-weight:bold;fill:#333}.axis{stroke:#999;fill:none}"
COLOURS = {
    "small realtime": "#d1495b",
    "text": "#2e86ab",
    "picture": "#3c9d6f",
    "clip": "#8d6ab8",
    "clip of a batch": "#9a8c7b",
}


def table(name: str, served: Sequence[Served]) -> list[str]:
    rows = []
    for what in COLOURS:
        waits = sorted(one.waited for one in served if one.arrival.what == what)
        p95 = quantiles(waits, n=20)[-1]
        rows.append(f"| {name} | {what} | {len(waits)} | {mean(waits):.1f} | {p95:.1f} | {waits[-1]:.1f} |")
    return rows


def panel(title: str, served: Sequence[Served], top: int, end: float, most: float) -> list[str]:
    """Waits by the time of arrival: one dot for each request."""
    bottom = top + PANEL
    lines = [
        f'<text x="{LEFT}" y="{top - 10}" class="head">{title}</text>',
        f'<path d="M{LEFT} {top}V{bottom}H{WIDTH - 20}" class="axis"/>',
    ]
    for seconds in range(0, int(most) + 1, 20):
        y = bottom - seconds / most * PANEL
        lines.append(f'<text x="{LEFT - 8}" y="{y + 4:.0f}" text-anchor="end">{seconds} s</text>')
    for one in served:
        x = LEFT + one.arrival.at / end * (WIDTH - 20 - LEFT)
        y = bottom - one.waited / most * PANEL
        colour = COLOURS[one.arrival.what]
        lines.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.2" fill="{colour}" fill-opacity="0.8"/>')
    return lines


def drawing(fifo: Sequence[Served], served: Sequence[Served]) -> str:
    most = max(one.waited for one in (*fifo, *served)) * 1.05
    height = 2 * PANEL + 2 * GAP + 50
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" fill="#555">',
        f"<style>{STYLE}</style>",
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        *panel("In the order of arrival: wait in line by time of arrival", fifo, GAP, WITHIN_S, most),
        *panel("With admission", served, 2 * GAP + PANEL, WITHIN_S, most),
    ]
    x = LEFT
    for what, colour in COLOURS.items():
        parts.append(f'<circle cx="{x + 5}" cy="{height - 24}" r="5" fill="{colour}"/>')
        parts.append(f'<text x="{x + 15}" y="{height - 20}">{what}</text>')
        x += 40 + 8 * len(what)
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    arrivals = mixed(COUNT, WITHIN_S, SEED)
    fifo = play(arrivals, Fifo(PERMITS, BUDGET))
    served = play(arrivals, Line(PERMITS, BUDGET, 1000, 10.0))
    print("| order | what | requests | mean wait, s | p95 | longest |\n|---|---|---|---|---|---|")
    print("\n".join([*table("arrival", fifo), *table("admission", served)]))
    ends = [max(one.ended for one in run) for run in (fifo, served)]
    print(f"\nall done after {ends[0]:.1f} s in the order of arrival, {ends[1]:.1f} s with admission")
    PICTURE.write_text(drawing(fifo, served), encoding="utf-8")


if __name__ == "__main__":
    main()
