#!/usr/bin/env bash
# The main job in a directory: a tree, containerd on it, images in it. As an
# ordinary user the images go into containerd's root without a daemon.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$(realpath -m "${1:-demo}")
say() { printf '\n\033[1m$ %s\033[0m\n' "$*"; "$@"; }
[[ -t 1 ]] || say() { printf '\n$ %s\n' "$*"; "$@"; }

echo "Building bin/seedbed (the first build takes some minutes: containerd is in it) …"
CGO_ENABLED=0 go build -ldflags='-s -w' -o bin/seedbed .
seedbed=(bin/seedbed --root "$root")
rm -rf "$root"

say "${seedbed[@]}" storage place -q
go run ./e2e/genbundle "$root/containerd/preseed"
say find "$root/containerd/preseed" -name '*.tar*'
say "${seedbed[@]}" preseed check -q

if [[ $(id -u) != 0 ]]; then
  say "${seedbed[@]}" preseed import --offline
  say "${seedbed[@]}" preseed list --offline
  echo; echo "The images are in $root/data/containerd, for a containerd that is started on it."
  exit 0
fi

printf '\n$ %s &\n' "${seedbed[*]} containerd run"
"${seedbed[@]}" containerd run 2>"$root/containerd.log" &
run=$!
trap 'kill $run 2>/dev/null; wait $run 2>/dev/null || true' EXIT
say "${seedbed[@]}" preseed import
say "${seedbed[@]}" preseed import
say "${seedbed[@]}" preseed list
printf '\n$ kill %s   # containerd stops, its log is in %s\n' "$run" "$root/containerd.log"
kill $run
wait $run
trap - EXIT
echo; echo "Done. Look around: bin/seedbed --root ${1:-demo} storage show"
