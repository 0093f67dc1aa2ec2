#!/usr/bin/env bash
# Every test of the module: first what needs little, then the end-to-end tests on real machines, one at a time. What real
# machines run is built before: tests of single packages use it too. Some tests need nothing but processors, however long it
# takes: judges (moto, cfn-lint, Terraform, the AWS CLI) and a program that is killed again and again. They run beside all
# others, on what those leave over.
# What this machine cannot do is skipped aloud; the closing line counts it.
set -euo pipefail
cd "$(dirname "$0")/.."
results=$(mktemp -d)
beside=
# A session of its own for what runs beside, since Linux shares processors between sessions first (sched(7), autogroup).
session=()
command -v setsid >/dev/null && session=(setsid)
ended() {
  [[ -z $beside ]] || kill -- "${session:+-}$beside" 2>/dev/null || true
  rm -rf "$results"
}
trap ended EXIT

real=
if [[ $(uname -s) == Linux && $(id -u) == 0 ]]; then
  hack/deps.sh || true # what is missing then is said below
  command -v nft >/dev/null && command -v debootstrap >/dev/null && real=yes
fi
if [[ $real ]]; then
  bin/slipway assets build --source assets >/dev/null
  bin/slipway region image
else
  echo "no root on Linux with nft and debootstrap here: tests on real machines will be skipped (see: make deps, as root)" >&2
fi
go vet ./...
status=0

"${session[@]}" nice -n 19 bash -c 'echo 19 2>/dev/null >/proc/self/autogroup || true
  exec go test -json -p 2 -timeout 35m ./test/judge ./test/killed' >"$results/beside" &
beside=$!
go test -json -p 3 -timeout 25m $(go list ./... | grep -v -e /test/e2e -e /test/judge -e /test/killed) >"$results/packages" || status=$?
go test -json -count=1 -timeout 35m ./test/e2e/... >"$results/e2e" || status=$?
wait "$beside" || status=$?
beside=

cat "$results"/* | go run ./hack/testsum
exit "$status"
