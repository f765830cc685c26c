#!/usr/bin/env bash
# Writes requirements/runtime.lock and requirements/dev.lock from pyproject.toml.
# One set of versions for CPython 3.11 and newer on every platform, each file with its hashes. Run by `make lock`.
set -euo pipefail
cd "$(dirname "$0")/.."

room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
"${PYTHON:-python3}" -m venv "$room/venv"
"$room/venv/bin/python" -m pip install --quiet --disable-pip-version-check uv

compile() { # OUTPUT GROUP...
  local output=$1 groups=()
  shift
  for group in "$@"; do groups+=(--group "$group"); done
  "$room/venv/bin/uv" pip compile pyproject.toml "${groups[@]}" --universal --python-version 3.11 \
    --fork-strategy fewest --generate-hashes --no-emit-index-url --no-emit-find-links --no-header \
    --upgrade --quiet --output-file "$room/lock"
  { printf '# Written by `make lock` from pyproject.toml; do not edit.\n'; cat "$room/lock"; } > "$output"
  echo "lock: $output, $(grep -c '==' "$output") packages"
}

mkdir -p requirements
compile requirements/runtime.lock
compile requirements/dev.lock dev build
