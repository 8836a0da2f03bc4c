#!/usr/bin/env bash
# Runs every fuzz target for the given time each.
set -euo pipefail
time=${1:-5m}
grep -rlE '^func Fuzz' --include='*_test.go' . | while read -r file; do
  for target in $(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p' "$file"); do
    echo "fuzz: $(dirname "$file") $target for $time"
    go test -run='^$' -fuzz="^$target\$" -fuzztime="$time" -fuzzminimizetime=10x "$(dirname "$file")"
  done
done
