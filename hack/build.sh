#!/usr/bin/env bash
# Builds bin/slipway, bin/slipway-node and bin/slipway-dns: static, reproducible (no paths, no VCS stamp).
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p bin
export CGO_ENABLED=0
version=$(git describe --tags --always --dirty 2>/dev/null || echo unknown)
ldflags="-s -w -X main.version=$version"
go build -trimpath -ldflags "$ldflags" -o bin/slipway ./cmd/slipway
# The agent's hash is in every node document: it carries no version of its own, so that an unchanged agent keeps its hash.
# grpcnotrace leaves out a debug page whose templates would make the linker keep every AWS call: 23 MB instead of 63.
agent() { GOARCH=$1 go build -trimpath -tags grpcnotrace -ldflags "-s -w" -o "$2" ./cmd/slipway-node; }
# The function has no version either. lambda.norpc leaves out the protocol of a runtime that AWS has retired.
dns() { GOARCH=$1 GOOS=linux go build -trimpath -tags lambda.norpc -ldflags "-s -w" -o "$2" ./cmd/slipway-dns; }
here=$(go env GOARCH)
agent "$here" bin/slipway-node
dns "$here" bin/slipway-dns
# Groups may be of the other architecture: slipway finds that agent and that function beside itself. SLIPWAY_ONE_ARCH=1 leaves it out.
if [[ -z ${SLIPWAY_ONE_ARCH:-} ]]; then
	other=arm64
	[[ $here == amd64 ]] || other=amd64
	agent "$other" "bin/slipway-node-$other"
	dns "$other" "bin/slipway-dns-$other"
fi
