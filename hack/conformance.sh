#!/usr/bin/env bash
# Kubernetes' conformance tests against a cluster of one control-plane machine and two workers in a local region of its own.
#
#   hack/conformance.sh                            all that test/conformance/exceptions.txt does not leave out
#   FOCUS='sig-network.*Services' hack/conformance.sh    those whose names match
#   SUITE=NetworkPolicy hack/conformance.sh        Kubernetes' specs about NetworkPolicies, which are no conformance tests
#   PROCESSES=2 hack/conformance.sh                specs at the same time; default 4
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/goflags.sh
bin/slipway assets build --source assets --conformance
bin/slipway region image
export SLIPWAY_E2E=require SLIPWAY_CONFORMANCE=1
exec go test -count=1 -timeout 10h -v -run 'TestConformance$' ./test/e2e
