#!/usr/bin/env bash
# Run the gateway in the background: script/service.sh start|status|reload|restart|stop
#
# DABOM_HOST (127.0.0.1) and DABOM_PORT (8001) say where it listens; every other setting is the gateway's own.
# The PID file and the log are in var/ (DABOM_VAR); the commands are those of .venv/bin (DABOM_BIN). Exit: 0 done (status: running and healthy), 1 failed, 2 wrong use.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
var=${DABOM_VAR:-$root/var}
bin=${DABOM_BIN:-$root/.venv/bin}
pid_file=$var/dabom.pid
port_file=$var/dabom.port
log=$var/dabom.log
host=${DABOM_HOST:-127.0.0.1}
start_within_s=90
stop_within_s=${DABOM_STOP_SECONDS:-60}

say() { printf '%s\n' "$*" >&2; }

port() {
  if running >/dev/null && [ -s "$port_file" ]; then cat "$port_file"; else echo "${DABOM_PORT:-8001}"; fi
}

# The PID when the process of the PID file lives and is a gateway: a PID that the system gave to another
# program since, or a process that has ended and waits for its parent, does not count.
running() {
  local pid state args
  [ -s "$pid_file" ] || return 1
  pid=$(tr -cd 0-9 <"$pid_file")
  [ -n "$pid" ] || return 1
  if [ -d /proc/self ]; then # a slim container has no ps
    state=$(sed 's/.*) //' "/proc/$pid/stat" 2>/dev/null) || return 1
    args=$(tr '\0' ' ' <"/proc/$pid/cmdline") 2>/dev/null || return 1
  else
    state=$(ps -o stat= -p "$pid" 2>/dev/null) || return 1
    args=$(ps -ww -o args= -p "$pid" 2>/dev/null) || return 1
  fi
  case $state in Z*) return 1 ;; esac
  case $args in *dabom*serve*) echo "$pid" ;; *) return 1 ;; esac
}

# GET /healthz without any proxy; prints the body when it is 200.
healthz() {
  "$bin/python" - "$(reach)" "$1" <<'PY' 2>/dev/null
import http.client, sys
link = http.client.HTTPConnection(sys.argv[1], int(sys.argv[2]), timeout=3)
link.request("GET", "/healthz")
reply = link.getresponse()
print(reply.read(200).decode())
sys.exit(reply.status != 200)
PY
}

reach() { case $host in 0.0.0.0 | '') echo 127.0.0.1 ;; ::) echo ::1 ;; *) echo "$host" ;; esac; }

taken() { (exec 3<>"/dev/tcp/$(reach)/$1") 2>/dev/null; }

lock() {
  mkdir -p "$var"
  command -v flock >/dev/null || return 0
  exec 9>"$var/dabom.lock"
  flock -w 120 9 || { say "another start or stop is still running"; exit 1; }
}

start() {
  local pid port=${DABOM_PORT:-8001} waited=0
  if pid=$(running); then
    say "already running: PID $pid, port $(port)"
    return 0
  fi
  rm -f "$pid_file" "$port_file"
  [ -x "$bin/dabom" ] || { say "$bin/dabom is missing; run make setup first"; return 1; }
  if taken "$port"; then
    say "port $port is in use by another program; stop it, or set DABOM_PORT to a free port"
    return 1
  fi
  (umask 077 && : >>"$log")
  nohup "$bin/dabom" serve --host "$host" --port "$port" >>"$log" 2>&1 </dev/null 9>&- &
  pid=$!
  echo "$pid" >"$pid_file"
  echo "$port" >"$port_file"
  until healthz "$port" >/dev/null; do
    if ! kill -0 "$pid" 2>/dev/null; then
      say "the gateway ended while starting; the end of $log:"
      tail -n 20 "$log" >&2
      rm -f "$pid_file" "$port_file"
      return 1
    fi
    waited=$((waited + 1))
    if [ "$waited" -ge $((start_within_s * 4)) ]; then
      say "no /healthz within $start_within_s s; see $log"
      stop
      return 1
    fi
    sleep 0.25
  done
  say "started: PID $pid, http://$(reach):$port, log $log"
}

stop() {
  local pid waited=0
  if ! pid=$(running); then
    rm -f "$pid_file" "$port_file"
    say "not running"
    return 0
  fi
  kill -TERM "$pid" 2>/dev/null || true
  while running >/dev/null; do
    waited=$((waited + 1))
    if [ "$waited" -ge $((stop_within_s * 5)) ]; then
      say "still running after $stop_within_s s: killed"
      kill -KILL "$pid" 2>/dev/null || true
      sleep 0.5
      break
    fi
    sleep 0.2
  done
  rm -f "$pid_file" "$port_file"
  say "stopped: PID $pid"
}

# Ask the gateway to read its settings anew, and tell what it says of that.
reload() {
  local pid from said waited=0
  if ! pid=$(running); then
    say "not running"
    return 1
  fi
  from=$(($(wc -c <"$log") + 1))
  kill -HUP "$pid" || return 1
  until said=$(tail -c "+$from" "$log" | grep -a -A 99 -m 1 '^dabom: the settings '); do
    waited=$((waited + 1))
    if ! running >/dev/null || [ "$waited" -ge $((start_within_s * 5)) ]; then
      say "no word about the settings; see $log"
      return 1
    fi
    sleep 0.2
  done
  said=$(grep -v '^{' <<<"$said") # the request log is in the same file
  say "$said"
  case $said in *"loaded anew"*) ;; *) return 1 ;; esac
}

status() {
  local pid port body
  if ! pid=$(running); then
    echo "not running"
    return 1
  fi
  port=$(port)
  echo "PID      $pid"
  echo "port     $port"
  if body=$(healthz "$port"); then
    echo "healthz  $body"
  else
    echo "healthz  no answer"
    return 1
  fi
}

case ${1:-} in
  start) lock && start ;;
  stop) lock && stop ;;
  restart) lock && stop && start ;;
  reload) reload ;;
  status) status ;;
  *)
    say "usage: script/service.sh start|status|reload|restart|stop"
    exit 2
    ;;
esac
