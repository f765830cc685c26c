#!/usr/bin/env bash
# The tests that concern an upstream, against real servers: llama.cpp, and vLLM on the CPU with tiny random models.
# Where vLLM cannot be had it says "skipped: <reason>" and ends with 0. Arguments go to pytest.
#
#   DABOM_VLLM=/path/to/folder     where vLLM's environment, models and media are kept (default: .vllm)
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly home=$(realpath -m "${DABOM_VLLM:-.vllm}")
readonly here=script/conformance

say() { printf 'conformance: %s\n' "$*" >&2; }
skip() { printf 'skipped: %s\n' "$*"; exit 0; }

say "llama.cpp"
.venv/bin/python -m pytest tests/llama_cpp -q

say "vLLM"
if ! reason=$("$here/install_vllm.sh" "$home"); then skip "${reason:-vLLM could not be installed}"; fi
for model in qwen3_vl qwen3_omni; do
  if [ ! -f "$home/models/$model/done" ]; then
    "$home/bin/python" -m script.conformance.$model "$home/models/$model" >&2
    touch "$home/models/$model/done"
  fi
done
.venv/bin/python -m script.conformance.media "$home/media"

# Checkpoints that count as the released ones do: their vocabulary comes out of the package dashscope.
readonly dashscope=2.0.2 vocabulary=$home/vocabulary
if [ ! -f "$vocabulary/merges.txt" ]; then
  if "$home/bin/python" -m pip download -q --no-deps -d "$vocabulary" "dashscope==$dashscope" >&2; then
    "$home/bin/python" -m script.conformance.vocabulary "$vocabulary/dashscope-$dashscope-py3-none-any.whl" "$vocabulary"
  else
    say "pip finds no dashscope==$dashscope, which holds Qwen's vocabulary: token counts are not compared"
  fi
fi
if [ -f "$vocabulary/merges.txt" ]; then
  for family in qwen3-vl qwen2.5-vl qwen3-omni; do
    if [ ! -f "$home/models/exact-$family/done" ]; then
      "$home/bin/python" -m script.conformance.exact "$family" "$vocabulary" "$home/models/exact-$family" >&2
      touch "$home/models/exact-$family/done"
    fi
  done
  .venv/bin/python -m script.conformance.token_media "$home/media/tokens"
fi
DABOM_VLLM=$home .venv/bin/python -m pytest tests/conformance -m conformance --timeout 700 -q -s "$@"
