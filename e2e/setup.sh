#!/usr/bin/env bash
# Sees to it that what the tests need is on this machine: installs Debian's
# packages when run as root on Debian, says exactly what is missing otherwise.
set -euo pipefail

packages=()
need() { command -v "$1" >/dev/null || packages+=("$2"); }
need go golang
need git git
need runc runc
need systemd-analyze systemd
need dbus-daemon dbus
need strace strace
need nsenter util-linux
need mkfs.xfs xfsprogs

((${#packages[@]})) || exit 0
if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
  echo "setup: installing ${packages[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
  exit 0
fi
echo "setup: missing: ${packages[*]}: the tests that need them are skipped" >&2
echo "setup: hint: as root on Debian: apt-get install ${packages[*]}" >&2
