#!/usr/bin/env bash
# Call the gateway with curl: script/curl_examples.sh chat|batch
#
# The body is built from the sample clips (or DATA_DIR/clips) and piped to curl: no media file is left behind.
# DABOM_URL (http://127.0.0.1:8001) is the gateway, DABOM_API_KEY its key. Exit: 0 done, 1 failed, 2 wrong use.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=${DABOM_BIN:-$root/.venv/bin}/python
url=${DABOM_URL:-http://127.0.0.1:8001}

[ -x "$python" ] || { echo "$python is missing; run make setup first" >&2; exit 1; }
command -v curl >/dev/null || { echo "curl is missing; install it first" >&2; exit 1; }

build() {
  "$python" - "$1" <<'PY'
import asyncio, os, sys
from pathlib import Path
from dabom.app.demo import find_samples
from dabom.client import ClipOptions, clip_request

async def main():
    folder = os.environ.get("DATA_DIR")
    clips = find_samples(Path(folder) if folder else None).clips
    bodies = [(clip.stem, (await clip_request(clip, ClipOptions())).body) for clip in clips[:3]]
    if sys.argv[1] == "chat":
        return bodies[0][1]
    return b'{"items":[' + b",".join(b'{"id":"%s","body":%s}' % (i.encode(), b) for i, b in bodies) + b"]}"

sys.stdout.buffer.write(asyncio.run(main()))
PY
}

# One JSON value per line in, indented JSON out, as it arrives.
pretty() {
  "$python" -c '
import json, sys
for line in sys.stdin:
    if line.strip():
        try:
            line = json.dumps(json.loads(line), ensure_ascii=False, indent=2)
        except ValueError:
            pass
        print(line, flush=True)
'
}

# The key goes to curl through a file descriptor: on the command line every user could read it.
call() {
  curl -sS -N --noproxy '*' --fail-with-body -X POST "$url$1" -H 'Content-Type: application/json' -H 'Expect:' \
    -H @<([ -z "${DABOM_API_KEY:-}" ] || printf 'Authorization: Bearer %s\n' "$DABOM_API_KEY") \
    --data-binary @-
}

case ${1:-} in
  chat) build chat | call /chat | pretty || exit 1 ;;
  batch) build batch | call /chat/batch | pretty || exit 1 ;;
  *)
    echo "usage: script/curl_examples.sh chat|batch" >&2
    exit 2
    ;;
esac
