#!/usr/bin/env bash
# Runs every fuzz target for FUZZTIME each.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${FUZZTIME:-10s}
grep -rl --include='*_test.go' '^func Fuzz' internal api 2>/dev/null | sort | while read -r f; do
  grep -o '^func Fuzz[A-Za-z0-9_]*' "$f" | sed 's/^func //' | while read -r name; do
    echo "fuzz ./$(dirname "$f") $name $time" >&2
    go test -run '^$' -fuzz "^$name\$" -fuzztime "$time" -fuzzminimizetime 10x "./$(dirname "$f")"
  done
done
