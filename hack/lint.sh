#!/usr/bin/env bash
# Runs golangci-lint (pinned in tools/go.mod) over the module, and prints and checks the style figures (hack/stylecheck).
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/goflags.sh
bin="${SLIPWAY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/slipway}/tools/golangci-lint-$(sha256sum tools/go.sum | cut -c1-12)"
if [[ ! -x $bin ]]; then
  echo "building golangci-lint (5 minutes when cold)" >&2
  mkdir -p "$(dirname "$bin")"
  go build -modfile=tools/go.mod -o "$bin.tmp" github.com/golangci/golangci-lint/v2/cmd/golangci-lint
  mv "$bin.tmp" "$bin"
fi
status=0
# With nothing cached, golangci-lint would take 19 GiB before its garbage is collected for the first times.
export GOMEMLIMIT="${GOMEMLIMIT:-8GiB}"
"$bin" run --allow-parallel-runners "$@" ./... || status=$?
go run ./hack/stylecheck || status=$?
exit "$status"
