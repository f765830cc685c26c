"""The same clips one by one to /chat, then at once to /chat/batch: both times and their ratio.

    python experiments/01_pipeline/batch_throughput.py [--url http://127.0.0.1:8001] [--clips 12]

Clips are read from DATA_DIR/clips, or from the samples without it; each is encoded once and used in both
ways. With fewer clips than asked for, they are repeated under ids of their own. The answer is free text, or
with --strict the JSON of four fields. Ends with 1 when a call failed, with 2 when it was called wrongly.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import sys
from pathlib import Path

from dabom.app.demo import compare, find_samples
from dabom.client import Client, ClipOptions, Item, clip_request
from dabom.errors import ConfigError


async def main(url: str, count: int, model: str | None, strict: bool) -> int:
    folder = os.environ.get("DATA_DIR")
    clips = (await asyncio.to_thread(find_samples, Path(folder) if folder else None)).clips
    options = ClipOptions(model=model, strict=strict)
    built = {clip: await clip_request(clip, options) for clip in clips[:count]}
    chosen = itertools.islice(itertools.cycle(built.items()), count)
    items = [Item(f"{number:04d}_{clip.stem}", body) for number, (clip, body) in enumerate(chosen, 1)]
    async with Client(url, api_key=os.environ.get("DABOM_API_KEY") or None) as client:
        found = await compare(client, items, lambda _step: None)
    for call in found.calls:
        if call.error:
            print(f"{call.step} {call.id}: {call.error}", file=sys.stderr)
    ids = [item.id for item in items]
    order = "완료순 = 입력순" if found.arrival == ids else "완료순 ≠ 입력순"
    print(f"순차  {found.sequential_ms}ms  {found.sequential_ok}/{found.count}")
    print(f"배치  {found.batch_ms}ms  {found.batch_ok}/{found.count}  X-Batch-Total={found.total}  {order}")
    print(f"{found.ratio:.2f}×")
    return 0 if found.whole(ids) else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="순차와 배치의 처리 시간 비교")
    parser.add_argument("--url", default="http://127.0.0.1:8001")
    parser.add_argument("--clips", type=int, default=12, choices=range(1, 129), metavar="1..128")
    parser.add_argument("--model")
    parser.add_argument("--strict", action="store_true")
    given = parser.parse_args()
    try:
        sys.exit(asyncio.run(main(given.url, given.clips, given.model, given.strict)))
    except ConfigError as error:
        print(error.message, file=sys.stderr)
        sys.exit(2)
