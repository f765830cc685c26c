"""The gateways that are compared: how each is installed, started and called.

Python peers live in their own environments under `.peers/`, made from hashed requirements; nginx comes from
the system; Portkey from npm. What cannot be had raises `Unavailable`, and the table gives its reason.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.gateway.launch import ROOT, Launch, free_port

if TYPE_CHECKING:
    from collections.abc import Callable

HERE: Final = Path(__file__).resolve().parent
PEERS: Final = HERE / ".peers"
_PORTKEY: Final = "1.15.2"
_INSTALL_S: Final = 900
_NGINX_CONF: Final = """worker_processes 1; daemon off; pid nginx.pid; error_log stderr error;
events {{ worker_connections 4096; }}
http {{
  access_log off; client_max_body_size 100m; client_body_buffer_size 8m;
  client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5;
  upstream stub {{ server {upstream}; keepalive 64; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://stub; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off; proxy_request_buffering off;
    }}
  }}
}}
"""
_LITELLM_CONF: Final = """model_list:
  - model_name: qwen
    litellm_params: {{model: openai/qwen, api_base: "http://{upstream}/v1", api_key: none}}
general_settings: {{master_key: sk-bench-only-not-secret}}
"""


_DABOM_CONF: Final = """# everything on: keys, routing, exact costs, admission by tokens, the audit
upstreams:
  - {{name: stub-a, url: "http://{upstream}/v1", kind: vllm, model: qwen, family: qwen3-vl, concurrency: 64,
     max_model_len: 262144, token_budget: 16777216}}
  - {{name: stub-b, url: "http://{upstream}/v1", kind: vllm, model: qwen, family: qwen3-vl,
     concurrency: 64, max_model_len: 262144, token_budget: 16777216}}
routes:
  pair: [[stub-a, stub-b]]
models: {{qwen: pair}}
auto:
  - any: pair
keys:
  - {{id: bench, hash: "{key_hash}", requests_per_minute: 100000000, tokens_per_minute: 100000000000}}
audit: {{database: "{home}/audit.db"}}
"""
_DABOM_KEY: Final = "dabom-bench-only-not-a-secret"


class Unavailable(Exception):
    """A peer that cannot be installed here; the message says why."""


@dataclass(frozen=True)
class Peer:
    """One gateway.

    `install` returns its version; `launch` gets the upstream as host:port. `restarts` asks for a new process
    in every round. `loose` accepts an answer that was parsed and written again.
    """

    name: str
    install: Callable[[], str]
    launch: Callable[[str], Launch]
    headers: Callable[[str], tuple[str, ...]] = lambda _upstream: ()
    restarts: bool = False
    loose: bool = False


def _run(argv: list[str], cwd: Path = ROOT) -> str:
    """Output of an install step; raises `Unavailable` with the last line that it printed."""
    try:
        done = subprocess.run(
            argv,
            check=False,
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=_INSTALL_S,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{argv[0]}: {error}") from error
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise Unavailable(f"{Path(argv[0]).name} failed: {lines[-1][:200] if lines else 'no output'}")
    return done.stdout + done.stderr


def _install_python(name: str, package: str) -> str:
    """Makes the environment once per content of the requirements file."""
    wanted = HERE / "requirements" / f"{name}.txt"
    home = PEERS / name
    stamp = home / "requirements.sha256"
    digest = hashlib.sha256(wanted.read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text() != digest:
        print(f"installing {name} ...", file=sys.stderr, flush=True)
        shutil.rmtree(home, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(home)])
        pip = [str(home / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, "--require-hashes", "-r", str(wanted)])
        stamp.write_text(digest)
    pinned = re.search(rf"^{re.escape(package)}(?:\[.*?\])?==(\S+)", wanted.read_text(), re.MULTILINE)
    return pinned[1] if pinned else "?"


def _install_nginx() -> str:
    if shutil.which("nginx") is None:
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            raise Unavailable("nginx is not installed; install the package nginx-light")
        print("installing nginx ...", file=sys.stderr, flush=True)
        wait = ["-o", "DPkg::Lock::Timeout=300"]
        _run(["apt-get", *wait, "update", "-qq"])
        _run(["apt-get", *wait, "install", "-y", "-qq", "--no-install-recommends", "nginx-light"])
    return _run(["nginx", "-v"]).strip().rpartition("/")[2]


def _install_portkey() -> str:
    home = PEERS / "portkey"
    if not (home / "node_modules/@portkey-ai/gateway/build/start-server.js").exists():
        if shutil.which("npm") is None:
            raise Unavailable("npm is not installed")
        print("installing portkey ...", file=sys.stderr, flush=True)
        home.mkdir(parents=True, exist_ok=True)
        _run(
            ["npm", "install", "--silent", "--no-fund", "--no-audit", f"@portkey-ai/gateway@{_PORTKEY}"], home
        )
    return _PORTKEY


def _install_dabom() -> str:
    command = Path(sys.executable).parent / "dabom"
    if not command.exists():
        raise Unavailable("the command dabom is not in this environment; run make setup")
    return _run(["git", "describe", "--always", "--dirty"]).strip()


def _launch_nginx(upstream: str) -> Launch:
    port = free_port()
    home = PEERS / "nginx"
    home.mkdir(parents=True, exist_ok=True)
    (home / "nginx.conf").write_text(_NGINX_CONF.format(upstream=upstream, port=port))
    return Launch("nginx", ("nginx", "-p", str(home), "-c", "nginx.conf", "-e", "stderr"), port)


def _launch_vllm_router(upstream: str) -> Launch:
    port = free_port()
    argv = (str(PEERS / "vllm-router/bin/vllm-router"), *_router_options(upstream, port))
    return Launch("vllm-router", argv, port)


def _launch_smg(upstream: str) -> Launch:
    port = free_port()
    return Launch("smg", (str(PEERS / "smg/bin/smg"), "launch", *_router_options(upstream, port)), port)


def _router_options(upstream: str, port: int) -> tuple[str, ...]:
    """The two routers share an ancestor and these options."""
    options = ("--worker-urls", f"http://{upstream}", "--host", "127.0.0.1", "--port", str(port))
    metrics = ("--prometheus-port", str(free_port()))
    return (*options, *metrics, "--policy", "round_robin", "--log-level", "error")


def _launch_litellm(upstream: str) -> Launch:
    port = free_port()
    home = PEERS / "litellm"
    (home / "bench.yaml").write_text(_LITELLM_CONF.format(upstream=upstream))
    argv = (str(home / "bin/litellm"), "--config", str(home / "bench.yaml"), "--host", "127.0.0.1")
    offline = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}
    listen = ("--port", str(port), "--num_workers", "1")
    return Launch("litellm", (*argv, *listen), port, offline, ready_s=120, ready_path="/health/liveliness")


def _litellm_headers(_upstream: str) -> tuple[str, ...]:
    return ("Authorization: Bearer sk-bench-only-not-secret",)


def _launch_portkey(upstream: str) -> Launch:
    port = free_port()
    start = PEERS / "portkey/node_modules/@portkey-ai/gateway/build/start-server.js"
    argv = ("node", str(start), f"--port={port}", "--headless")
    return Launch("portkey", argv, port, ready_path="/")


def _portkey_headers(upstream: str) -> tuple[str, ...]:
    return (
        "x-portkey-provider: openai",
        f"x-portkey-custom-host: http://{upstream}/v1",
        "Authorization: Bearer none",
    )


def _launch_dabom(upstream: str) -> Launch:
    """The product with everything on; two upstreams, which are the same stub, so that there is a choice."""
    port, home = free_port(), PEERS / "dabom"
    home.mkdir(parents=True, exist_ok=True)
    for old in home.glob("audit.db*"):
        old.unlink()
    digest = "sha256:" + hashlib.sha256(_DABOM_KEY.encode()).hexdigest()
    text = _DABOM_CONF.format(upstream=upstream, key_hash=digest, home=home)
    (home / "dabom.yaml").write_text(text)
    argv = (str(Path(sys.executable).parent / "dabom"), "serve", "--config", str(home / "dabom.yaml"))
    return Launch("dabom", (*argv, "--host", "127.0.0.1", "--port", str(port)), port, ready_path="/healthz")


def _dabom_headers(_upstream: str) -> tuple[str, ...]:
    return (f"Authorization: Bearer {_DABOM_KEY}",)


def _launch_bare(upstream: str) -> Launch:
    port = free_port()
    argv = (sys.executable, "-m", "bench.gateway.bare", str(port), upstream)
    return Launch("bare", argv, port)


def all_peers() -> dict[str, Peer]:
    """Every gateway by name, in the order of the table."""
    peers = [
        Peer("dabom", _install_dabom, _launch_dabom, _dabom_headers),
        Peer("bare", lambda: f"Python {platform.python_version()}", _launch_bare),
        Peer("nginx", _install_nginx, _launch_nginx),
        Peer("vllm-router", lambda: _install_python("vllm-router", "vllm-router"), _launch_vllm_router),
        Peer("smg", lambda: _install_python("smg", "smg"), _launch_smg, restarts=True),
        Peer("portkey", _install_portkey, _launch_portkey, _portkey_headers, loose=True),
        Peer(
            "litellm",
            lambda: _install_python("litellm", "litellm"),
            _launch_litellm,
            _litellm_headers,
            loose=True,
        ),
    ]
    return {peer.name: peer for peer in peers}
