#!/usr/bin/env bash
# Every test of the module, with what was skipped and why, and a closing count.
set -euo pipefail
cd "$(dirname "$0")/.."
go vet ./...
go test -json -p 2 "$@" ./... | go run ./hack/testsum
