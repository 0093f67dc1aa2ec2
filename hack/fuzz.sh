#!/usr/bin/env bash
# Runs every fuzz target for FUZZTIME each; with FUZZ=WORD those of files whose path has the word.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${FUZZTIME:-10s}

# run_target runs a fuzz target of a package. On a busy machine go test may report its own deadline as a failure, without an
# input that fails (github.com/golang/go/issues/75804); that is not a failure of the target.
run_target() {
  local output
  output=$(go test -run '^$' -fuzz "^$2\$" -fuzztime "$time" -fuzzminimizetime 10x "$1" 2>&1) && { echo "$output"; return; }
  echo "$output"
  grep -q 'context deadline exceeded' <<<"$output" && ! grep -qE 'Failing input written|panic:' <<<"$output"
}

grep -rl --include='*_test.go' '^func Fuzz' internal api 2>/dev/null | grep -F -- "${FUZZ:-}" | sort | while read -r f; do
  grep -o '^func Fuzz[A-Za-z0-9_]*' "$f" | sed 's/^func //' | while read -r name; do
    echo "fuzz ./$(dirname "$f") $name $time" >&2
    run_target "./$(dirname "$f")" "$name"
  done
done
