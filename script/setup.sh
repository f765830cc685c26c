#!/usr/bin/env bash
# Makes .venv from requirements/dev.lock, installs this package into it (editable) and installs the system
# packages that the tests use where it may. Asks nothing. A run with nothing to do ends within a second.
#
#   PYTHON=python3.12              the interpreter for .venv (3.11 or newer)
#   DABOM_SYSTEM_PACKAGES=no       leave the system's packages alone
set -euo pipefail
cd "$(dirname "$0")/.."
exec < /dev/null

readonly lock=requirements/dev.lock
readonly stamp=.venv/.dabom-setup
readonly apt_failed=.venv/.dabom-apt-failed

say() { printf 'setup: %s\n' "$*"; }
stop() { printf 'setup: %s\n' "$*" >&2; exit 1; }

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; }

find_python() {
  local name
  if [ -n "${PYTHON:-}" ]; then
    new_enough "$PYTHON" || stop "PYTHON=$PYTHON is not a Python 3.11 or newer"
    python=$PYTHON
    return
  fi
  for name in python3 python3.14 python3.13 python3.12 python3.11; do
    if command -v "$name" > /dev/null && new_enough "$name"; then python=$name; return; fi
  done
  stop "Python 3.11 or newer is needed; found $(python3 --version 2> /dev/null || echo none)." \
    "Install one, or name it: PYTHON=/path/to/python3.11 make setup"
}

fingerprint() {
  { cat "$lock" pyproject.toml script/setup.sh; pwd; .venv/bin/python -V; } 2> /dev/null | sha256sum | cut -d' ' -f1
}

make_venv() {
  if [ -x .venv/bin/python ] && new_enough .venv/bin/python && .venv/bin/python -m pip --version > /dev/null 2>&1; then
    return
  fi
  find_python
  say "making .venv with $("$python" --version)"
  "$python" -m venv --clear .venv || stop "'$python -m venv' failed; on Debian and Ubuntu: apt-get install python3-venv"
}

install_python_packages() {
  if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(fingerprint)" ]; then
    say "Python packages are as locked"
    return
  fi
  make_venv
  local pip=(.venv/bin/python -m pip --disable-pip-version-check --no-input -qq) # errors only: a mirror that lacks a package is no news
  say "installing $(grep -c '^[a-z0-9].*==' "$lock") locked Python packages (a minute or two the first time)"
  "${pip[@]}" install --require-hashes -r "$lock"
  say "installing dabom itself, editable"
  "${pip[@]}" install --no-deps --no-build-isolation --editable .
  fingerprint > "$stamp"
}

has_chromium() { command -v chromium || command -v chromium-browser || command -v google-chrome; }
has_korean_font() { command -v fc-list && fc-list :lang=ko file | grep -q .; }
has_curl() { command -v curl; }
has_ffmpeg() { command -v ffmpeg && command -v ffprobe; }
has_postgresql() { command -v initdb || compgen -G '/usr/lib/postgresql/*/bin/initdb'; }

# test | Debian package | what it is for
needs() {
  cat << 'END'
has_chromium|chromium|tests that open the pages in a browser
has_korean_font|fonts-nanum|Korean text in browser pictures
has_curl|curl|script/curl_examples.sh
has_postgresql|postgresql|the tests that write the audit to a PostgreSQL of their own
has_ffmpeg|ffmpeg|the test in which llama.cpp reads a clip (Dabom itself does not use it)
END
}

may_install() {
  if [ "${DABOM_SYSTEM_PACKAGES:-}" = no ]; then reason="DABOM_SYSTEM_PACKAGES=no"; return 1; fi
  if ! command -v apt-get > /dev/null; then reason="no apt-get on this system"; return 1; fi
  if [ "$(id -u)" = 0 ]; then as_root=(env); return; fi
  if command -v sudo > /dev/null && sudo -n true 2> /dev/null; then as_root=(sudo -n env); return; fi
  reason="neither root nor sudo without a password"
  return 1
}

apt() {
  "${as_root[@]}" DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=120 \
    -o Acquire::Retries=1 -o Acquire::http::Timeout=20 "$@" > /dev/null 2>&1
}

install_system_packages() {
  local check package purpose missing=() lines=() reason=
  while IFS='|' read -r check package purpose; do
    if ! "$check" > /dev/null 2>&1; then missing+=("$package"); lines+=("$check|$package|$purpose"); fi
  done < <(needs)
  if [ ${#missing[@]} = 0 ]; then say "system packages are there"; return; fi
  if may_install; then
    if [ "$(cat "$apt_failed" 2> /dev/null)" = "${missing[*]}" ]; then
      reason="apt-get could not install it before; rm $apt_failed to try again"
    else
      say "installing with apt-get: ${missing[*]}"
      reason="apt-get could not install it"
      apt update || true # an old list may still do
      apt install --no-install-recommends fontconfig "${missing[@]}" || for package in "${missing[@]}"; do
        apt install --no-install-recommends "$package" || true # told below, package by package
      done
    fi
  fi
  missing=()
  for line in "${lines[@]}"; do
    IFS='|' read -r check package purpose <<< "$line"
    if "$check" > /dev/null 2>&1; then
      say "$package: installed"
    else
      missing+=("$package")
      say "$package: NOT installed ($reason); needed for: $purpose"
    fi
  done
  if [ ${#missing[@]} = 0 ]; then rm -f "$apt_failed"; elif [ ${#as_root[@]} != 0 ]; then
    echo "${missing[*]}" > "$apt_failed"
  fi
}

as_root=()
install_python_packages
install_system_packages
