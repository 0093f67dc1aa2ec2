#!/usr/bin/env bash
# Runs govulncheck (a pinned version) over the programs: known vulnerabilities in code that they call. The database is
# https://vuln.go.dev, or what GOVULNDB names; where it cannot be reached, the check is skipped with the reason.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/goflags.sh
version=v1.9.0
database="${GOVULNDB:-https://vuln.go.dev}"
if [[ $database == http* ]] && ! curl --silent --fail --max-time 20 --output /dev/null "$database/index/db.json"; then
  echo "SKIPPED: the vulnerability database $database cannot be reached; set GOVULNDB to a mirror of it" >&2
  exit 0
fi
bin="${SLIPWAY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/slipway}/tools/govulncheck-$version"
if [[ ! -x $bin ]]; then
  echo "building govulncheck $version" >&2
  mkdir -p "$(dirname "$bin")"
  GOBIN="$bin.d" GOFLAGS= go install "golang.org/x/vuln/cmd/govulncheck@$version"
  mv "$bin.d/govulncheck" "$bin"
  rmdir "$bin.d"
fi
"$bin" -db "$database" ./cmd/... "$@"
