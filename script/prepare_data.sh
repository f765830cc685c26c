#!/usr/bin/env bash
# Cuts recordings into clips and makes the first clip's blackout: script/prepare_data.sh [CATEGORY FILE]
#
#   data/raw/CATEGORY/FILE -> data/clips/CATEGORY/NAME/0001_0600-0606.mp4 ... and data/blackout/CATEGORY/NAME/
#
# Without arguments: the seven recordings of the broadcast benchmark. A recording that is not there is told and
# passed over; clips that are there are kept (FORCE=1 makes them anew). The recordings are not touched.
#
#   START=10:00 END=20:00 EVERY=6    the window, and seconds of a clip
#   PROFILE=seed                     seed keeps size and rate; lean, caption: see docs/clips.md
#   DABOM_DATA=data                  where the tree is
#
# Exit: 0 done, 1 something failed or the named recording is missing, 2 wrong use.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
bin=${DABOM_BIN:-$root/.venv/bin}
data=${DABOM_DATA:-$root/data}
failed=0
missing=0

targets=(
  "baseball baseball.mp4"
  "docu docu.mp4"
  "drama drama.mp4"
  "entertain entertain.mp4"
  "esports lol.mp4"
  "hist_drama hist_drama.mp4"
  "news news.mp4"
)

say() { printf '%s\n' "$*" >&2; }

prepare() {
  local category=$1 file=$2 force=()
  local source=$data/raw/$category/$file base=${file%.*}
  local clips=$data/clips/$category/$base black=$data/blackout/$category/$base
  if [ ! -f "$source" ]; then
    say "! 원본 없음, 건너뜀 · no such recording, passed over: $source"
    missing=1
    return
  fi
  [ "${FORCE:-}" != 1 ] || force=(--force)
  say "▶ $category/$base"
  "$bin/dabom" clips cut "$source" "$clips" --start "${START:-10:00}" --end "${END:-20:00}" \
    --every "${EVERY:-6}" --profile "${PROFILE:-seed}" "${force[@]}" || { failed=1; return; }
  local first
  first=$(find "$clips" -maxdepth 1 -name '0001_*.mp4' | sort | head -n 1)
  [ -n "$first" ] || return 0
  "$bin/dabom" clips control "$first" "$black" --kind blackout "${force[@]}" || failed=1
}

case $# in
  0)
    for target in "${targets[@]}"; do
      read -r category file <<< "$target"
      prepare "$category" "$file"
    done
    ;;
  2)
    case "$1/$2" in
      */*/* | /* | */ | *..*) say "prepare_data: CATEGORY and FILE are plain names, got: $1 $2"; exit 2 ;;
    esac
    prepare "$1" "$2"
    failed=$((failed | missing))
    ;;
  *)
    say "script/prepare_data.sh [CATEGORY FILE]"
    exit 2
    ;;
esac
exit "$failed"
