#!/usr/bin/env bash
# Every test of the module: first what needs little, then the end-to-end tests on real machines, one at a time. What real
# machines run is built before: tests of single packages use it too.
# What this machine cannot do is skipped aloud; the closing line counts it.
set -euo pipefail
cd "$(dirname "$0")/.."
results=$(mktemp)
trap 'rm -f "$results"' EXIT

if [[ $(uname -s) == Linux && $(id -u) == 0 ]] && command -v nft >/dev/null && command -v debootstrap >/dev/null; then
  bin/slipway assets build --source assets >/dev/null
  bin/slipway region image
else
  echo "no root on Linux with nft and debootstrap here: tests on real machines will be skipped (make deps, as root)" >&2
fi
go vet ./...
status=0
go test -json -p 2 -timeout 25m $(go list ./... | grep -v /test/e2e) >"$results" || status=$?

go test -json -count=1 -timeout 35m ./test/e2e/... >>"$results" || status=$?

go run ./hack/testsum <"$results"
exit "$status"
