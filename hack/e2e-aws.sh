#!/usr/bin/env bash
# Runs Slipway's steps against an AWS account, or a region at AWS_ENDPOINT_URL, and deletes everything (docs/testing.md).
#
#   hack/e2e-aws.sh                        a new run; first sweeps the runs of this computer that were killed
#   hack/e2e-aws.sh e2e-1126-0704-3fa9     only sweeps that run
#
# The program replaces this script, so that signals reach it: it deletes the cluster before it ends.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/goflags.sh
go build -o bin/e2eaws ./hack/e2eaws
exec bin/e2eaws ${1:+-sweep "$1"}
