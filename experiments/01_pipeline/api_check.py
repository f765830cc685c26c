"""The six-step check of the pipeline against a gateway that runs already.

    python experiments/01_pipeline/api_check.py [--url http://127.0.0.1:8001] [--out var/api_check]

Clips are read from DATA_DIR (clips/**/*.mp4 and blackout/**/*.mp4), or from the samples without it.
The key is read from DABOM_API_KEY. Ends with 1 when a row fails, with 2 when it was called wrongly.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path

from dabom.app.demo import Check, find_samples
from dabom.client import Client
from dabom.errors import ConfigError


async def main(url: str, out: Path) -> int:
    folder = os.environ.get("DATA_DIR")
    samples = await asyncio.to_thread(find_samples, Path(folder) if folder else None)
    async with Client(url, api_key=os.environ.get("DABOM_API_KEY") or None) as client:
        report = await Check(client, samples, out).run()
    for row in report.rows:
        print(f"{'PASS' if row.passed else 'FAIL'}  {row.item:<10}  {row.route:<17}  {row.result}")
    return 0 if report.passed else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="게이트웨이 6단계 점검")
    parser.add_argument("--url", default="http://127.0.0.1:8001")
    parser.add_argument("--out", type=Path, default=Path("var/api_check"))
    given = parser.parse_args()
    try:
        sys.exit(asyncio.run(main(given.url, given.out)))
    except ConfigError as error:
        print(error.message, file=sys.stderr)
        sys.exit(2)
