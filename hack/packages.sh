#!/usr/bin/env bash
# Builds the packages of a release in dist; see hack/packages. Arguments are passed to it, such as
# -platforms linux/amd64 -formats deb. nfpm is pinned in tools/packages.mod.
set -euo pipefail
cd "$(dirname "$0")/.."
nfpm="${SLIPWAY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/slipway}/tools/nfpm-$(sha256sum tools/packages.sum | cut -c1-12)"
if [[ ! -x $nfpm ]]; then
  echo "building nfpm" >&2
  mkdir -p "$(dirname "$nfpm")"
  CGO_ENABLED=0 go build -modfile=tools/packages.mod -o "$nfpm.$$" github.com/goreleaser/nfpm/v2/cmd/nfpm
  mv "$nfpm.$$" "$nfpm"
fi
exec go run ./hack/packages -nfpm "$nfpm" "$@"
