#!/usr/bin/env bash
# Runs every test of the module.
#
#   hack/test.sh             what `make test` runs
#   SLIPWAY_RACE=1 ...       also runs every package with the race detector, heavy packages in their short form, and
#                            every fuzz target for 2 s; CI sets it
#
# Order: first what machines run is built, because tests of single packages use it too. Then the packages run, and at a
# low priority next to them the tests that only need processors: judges (moto, cfn-lint, Terraform, the AWS CLI), the
# program that is killed again and again, the command line, the engine, long tests of decisions, fuzz targets. The
# end-to-end tests on real machines come last, one at a time.
# Tests with a long form run in their short form; make long and make e2e run the long one.
# Tests that this machine cannot run are skipped; the closing lines list and count the reasons.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/goflags.sh

results=$(mktemp -d)
background=
agent=

# A session of its own for the background tests: Linux divides processors between sessions first (sched(7), autogroup).
session=()
command -v setsid >/dev/null && session=(setsid)

# say_phase says how long the tests of a phase took.
phase_start=$SECONDS
say_phase() {
  echo "test.sh: $1 took $((SECONDS - phase_start)) s" >&2
  phase_start=$SECONDS
}

clean_up() {
  [[ -z $background ]] || kill -- "${session:+-}$background" 2>/dev/null || true
  [[ -z $agent ]] || kill "$agent" 2>/dev/null || true
  rm -rf "$results"
}
trap clean_up EXIT

real=
if [[ $(uname -s) == Linux && $(id -u) == 0 ]]; then
  hack/deps.sh || true # the next line finds what is missing then
  command -v nft >/dev/null && command -v debootstrap >/dev/null && real=yes
fi
if [[ $real ]]; then
  bin/slipway assets build --source assets >/dev/null
  bin/slipway region image
else
  echo "no root on Linux with nft and debootstrap: tests on real machines will be skipped (as root, run: make deps)" >&2
fi

go vet ./... # everything; the runs below leave it out
status=0
say_phase "the preparation"

# Packages whose full tests take minutes, at least with the race detector. With it they run in their short form (go test -short).
heavy='/internal/(cli|repocheck|cluster/rollingupdate|machine/addon/channelsource)$|/test/(judge|killed|engine|bench)$'
packages=$(go list ./... | grep -v /test/e2e)
# Attacks start control planes and change networks, so they stay out of the background. With the race detector they are heavy.
attacks='/test/attack$'
light=$(grep -Ev "$heavy" <<<"$packages")
# Packages that need nothing but a processor, for long. They run in the background while machines boot; with the race
# detector the light ones run with the others.
computing='/internal/(region/cloudformation|infra/iampolicy)$'
export computing_packages
computing_packages=$(grep -E "$heavy" <<<"$packages" | grep -Ev '/test/(judge|killed)$')
if [[ ! ${SLIPWAY_RACE:-} ]]; then
  computing_packages+=" $(grep -E "$computing" <<<"$packages")"
  light=$(grep -Ev "$computing" <<<"$light")
fi
# Packages whose tests mostly wait. They start first, so that others have the processors meanwhile.
waiting='/internal/(region/(network|machine)|machine/agent|infra/aws|lib/(asset/build|store))$|/test/(attack|packages|tutorials)$'
light="$(grep -E "$waiting" <<<"$light") $(grep -Ev "$waiting" <<<"$light")"

run_background() {
  echo 10 2>/dev/null >/proc/self/autogroup || true
  local failed=0
  go test -vet=off -json -p 2 -timeout 75m ./test/judge ./test/killed >"$1/judges" || failed=1
  go test -vet=off -json -p 2 -timeout 60m $computing_packages >"$1/computing" || failed=1
  if [[ ${SLIPWAY_RACE:-} ]]; then
    FUZZTIME=2s hack/fuzz.sh >"$1/fuzz.log" 2>&1 || { cat "$1/fuzz.log" >&2; failed=1; }
  fi
  return "$failed"
}
export -f run_background
"${session[@]}" nice -n 10 bash -c 'run_background "$1"' background "$results" &
background=$!

if [[ ${SLIPWAY_RACE:-} ]]; then
  # repocheck reads documents one after the other: the race detector would find nothing in it.
  CGO_ENABLED=1 go test -race -vet=off -json -p 4 -timeout 30m $(tr ' ' '\n' <<<"$light" | grep -Ev "$attacks") >"$results/packages" || status=$?
  CGO_ENABLED=1 go test -race -vet=off -short -json -p 2 -timeout 30m $(grep -E "$heavy|$attacks" <<<"$packages" | grep -v /internal/repocheck) >"$results/race" || status=$?
  go test -vet=off -json -timeout 25m ./test/attack >"$results/attack" || status=$?
else
  # The tests of the agent wait for etcd and API servers, longer than all other packages take: machines boot meanwhile.
  go test -vet=off -json -timeout 25m ./internal/machine/agent >"$results/agent" &
  agent=$!
  go test -vet=off -json -p 3 -timeout 25m $(tr ' ' '\n' <<<"$light" | grep -v '/internal/machine/agent$') >"$results/packages" || status=$?
fi
say_phase "the packages"
go test -vet=off -json -count=1 -timeout 50m ./test/e2e/... >"$results/e2e" || status=$?
say_phase "the machines"
[[ -z $agent ]] || wait "$agent" || status=$?
agent=
wait "$background" || status=$?
background=
say_phase "the rest of the background"

rm -f "$results/fuzz.log"
cat "$results"/* | go run ./hack/testsum
exit "$status"
