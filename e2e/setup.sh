#!/usr/bin/env bash
# Sees to it that what the tests need is on this machine: installs Debian's
# packages when run as root on Debian, says exactly what is missing otherwise.
set -euo pipefail

packages=()
machine=() # what only the virtual machine of e2e/vm needs
tpm=()     # and for its TPM2; the libraries' names are Debian 12's
missing_kernel=
need() { command -v "$1" >/dev/null || packages+=("$2"); }
need go golang
need git git
need runc runc
need systemd-analyze systemd
need dbus-daemon dbus
need strace strace
need nsenter util-linux
need mkfs.xfs xfsprogs

need_machine() { command -v "$1" >/dev/null || machine+=("$2"); }
kernel=${XDG_CACHE_HOME:-$HOME/.cache}/seedbed-e2e/kernel
if [[ $(uname -m) == x86_64 ]]; then
  need_machine qemu-system-x86_64 qemu-system-x86
  need_machine udevadm udev
  need_machine modprobe kmod
  need_machine dmsetup dmsetup
  command -v swtpm >/dev/null || tpm+=(swtpm)
  compgen -G '/usr/lib/*/libtss2-esys.so.*' >/dev/null || tpm+=(libtss2-esys-3.0.2-0 libtss2-rc0 libtss2-mu0 libtss2-tcti-device0)
  [[ -d $kernel ]] || missing_kernel=linux-image-cloud-amd64
fi

# The kernel is not installed: it is unpacked, with the index of its modules.
fetch_kernel() (
  package=$(apt-cache depends "$missing_kernel" | sed -n 's/^ *Depends: //p')
  fetched=$(mktemp -d)
  trap 'rm -rf "$fetched"' EXIT
  cd "$fetched" && apt-get download -qq "$package" 2>/dev/null && dpkg -x ./*.deb root &&
    depmod -b root "${package#linux-image-}" && mkdir -p "${kernel%/*}" && mv root "$kernel"
)

missing="${packages[*]} ${machine[*]} ${tpm[*]} $missing_kernel"
[[ $missing =~ [^\ ] ]] || exit 0
if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
  echo "setup: installing $missing"
  export DEBIAN_FRONTEND=noninteractive
  install() { (($# == 0)) || apt-get install -y -qq --no-install-recommends "$@" >/dev/null; }
  apt-get update -qq
  install "${packages[@]}"
  # A test without its virtual machine is skipped; that is no reason to run none.
  { install "${machine[@]}" && { [[ -z $missing_kernel ]] || fetch_kernel; }; } ||
    echo "setup: without ${machine[*]} $missing_kernel: the tests in a virtual machine are skipped" >&2
  install "${tpm[@]}" || echo "setup: without ${tpm[*]}: the test with a TPM2 is skipped" >&2
  exit 0
fi
echo "setup: missing: $missing: the tests that need them are skipped" >&2
echo "setup: hint: as root on Debian, e2e/setup.sh installs them" >&2
