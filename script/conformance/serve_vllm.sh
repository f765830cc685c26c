#!/usr/bin/env bash
# serve_vllm.sh MODEL NAME PORT [flags]: vLLM on the CPU with a small cache; ends on SIGTERM.
set -euo pipefail
readonly model=$1 name=$2 port=$3
shift 3
: "${DABOM_VLLM:?the folder of vLLM, as script/conformance/run.sh sets it}"

export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1
export OMP_NUM_THREADS=1 VLLM_CPU_OMP_THREADS_BIND=nobind CUDA_VISIBLE_DEVICES=
export VLLM_CACHE_ROOT=$DABOM_VLLM/cache
# The console script does not start in the CPU package, so the module is run.
exec "$DABOM_VLLM/bin/python" -m vllm.entrypoints.openai.api_server \
  --model "$model" --served-model-name "$name" --host 127.0.0.1 --port "$port" --seed 0 \
  --max-model-len 4096 --max-num-seqs 8 --max-num-batched-tokens 4096 --kv-cache-memory-bytes 67108864 \
  --enforce-eager --dtype bfloat16 --no-enable-prefix-caching \
  --enable-auto-tool-choice --tool-call-parser hermes --trust-request-mm-kwargs --enable-prompt-tokens-details \
  --enable-request-id-headers \
  --structured-outputs-config '{"backend":"xgrammar","disable_any_whitespace":true}' "$@"
