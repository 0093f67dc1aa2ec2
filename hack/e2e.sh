#!/usr/bin/env bash
# The end-to-end tests in their long form and the tutorials, against a local region of their own. SLIPWAY_E2E=require makes them fail where they would skip.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/goflags.sh
hack/assets.sh >/dev/null
bin/slipway assets build --source assets --kubernetes-version 1.35 --earlier-components --addon-images --later-etcd >/dev/null
bin/slipway region image
SLIPWAY_LONG=1 go test -count=1 -timeout "${E2E_TIMEOUT:-120m}" -v -p 1 -run "${E2E_RUN:-.}" ./test/e2e/... ./test/tutorials
