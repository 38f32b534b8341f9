#!/bin/bash
# A real SGLang 0.5.23 and sglang-router 0.3.2 that run on a CPU with a tiny random model: setup.sh DIR
# About 3 minutes and 7 GB; Python 3.11, a Debian or Ubuntu with apt-get, network. May be repeated after a failure.
# For tests of a deployment tool only: real process tree, ports, endpoints, signals, logs, router and prefill/decode
# hand-off (mooncake over TCP); not for speed and not for DeepSeek-V4's own kernels.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "${1:?usage: setup.sh DIR}"
cd "$1"

fail() { echo "cannot set up a real SGLang in $PWD: $1" >&2; exit 1; }
is_311() { "$1" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; }
pip() { venv/bin/pip install -q --no-cache-dir --disable-pip-version-check "$@"; }

if ! [ -x venv/bin/pip ]; then
  for python in python3 python3.11 "$here/../../../.venv/bin/python"; do
    is_311 "$python" && break || python=
  done
  [ -n "$python" ] || fail "it needs Python 3.11 with its venv module; type: apt-get install python3.11-venv"
  [ "$(df -k --output=avail . | tail -n 1)" -gt 8000000 ] || fail "it needs 8 GB here"
  "$python" -m venv venv
fi

# All CUDA-only dependencies are left out, so SGLang itself is installed without looking at what it requires.
pip torch==2.14.1 torchvision==0.29.1 aiohttp anthropic blobfile==3.0.0 compressed-tensors==0.18.0 datasets distro \
  easydict einops fastapi gguf interegular IPython 'llguidance<2.0.0,>=1.7.6' 'mistral_common>=1.11.5' msgspec ninja \
  numba==0.65.1 numpy nvidia-ml-py openai==2.8.0 openai-harmony==0.0.4 orjson outlines==0.1.11 packaging \
  partial_json_parser pillow prometheus-client psutil py-spy pybase64 pydantic python-multipart pyzmq regex requests \
  scipy sentencepiece==0.2.1 setproctitle tiktoken tokenizers==0.23.2 tqdm transformers==5.19.0 'uvicorn>=0.51' uvloop \
  watchfiles xgrammar==0.2.7 xxhash zstandard apache-tvm-ffi==0.1.11 soundfile==0.13.1 'python-dateutil<3'
pip --no-deps sglang==0.5.23 sglang_router==0.3.2
site=$(venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
# SGLang's CPU kernels have no wheel: see the module's docstring.
cp -r "$here/sgl_kernel" "$site/"
venv/bin/python "$here/mkmodel.py" model

# Prefill and decode: a transfer engine without CUDA, its two libraries unpacked here, and one CUDA-only path of the
# sender switched off.
pip mooncake-transfer-engine-non-cuda==0.3.13.post1
if ! ls syslibs/usr/lib/*/libibverbs.so.1 >/dev/null 2>&1; then
  mkdir -p deb
  (
    cd deb
    debs="libibverbs1 libnl-3-200 libnl-route-3-200"
    # shellcheck disable=SC2086 # a list of words
    apt-get download $debs >/dev/null 2>&1 || { apt-get update -qq && apt-get download $debs >/dev/null; }
    for deb in *.deb; do dpkg -x "$deb" ../syslibs; done
  )
fi
sed -i 's/^    supports_host_tensor_indices = True$/    supports_host_tensor_indices = False/' \
  "$site/sglang/srt/disaggregation/mooncake/conn.py"
