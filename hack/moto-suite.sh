#!/usr/bin/env bash
# Runs the tests of moto that test/moto/suite/suite.txt lists, against the local region without machines.
#
#   hack/moto-suite.sh             all services
#   hack/moto-suite.sh test_ec2    one service
#
# MOTO_TESTS is a checkout of moto, whose folder tests is used; by default moto below the cache directory. MOTO_PYTHON
# is a Python with moto and pytest; by default python3. Exits 0 with a reason if one of them is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/goflags.sh

skip() {
  printf 'SKIPPED: %s\n' "$*"
  exit 0
}

python=${MOTO_PYTHON:-python3}
command -v "$python" >/dev/null || skip "no $python to run moto's tests with"
version=$("$python" -c 'import moto; print(moto.__version__)' 2>/dev/null) || skip "$python has no moto"

tests=${MOTO_TESTS:-${SLIPWAY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/slipway}/moto}
if [[ ! -f $tests/tests/test_ec2/test_instances.py ]]; then
  skip "no tests of moto in $tests: git clone --depth 1 --branch $version https://github.com/getmoto/moto $tests"
fi
if ! "$python" -c 'import pytest' 2>/dev/null; then
  skip "$python has no pytest: pip install pytest, or set PYTHONPATH to a folder that has only pytest and what it imports"
fi

export MOTO_TESTS=$tests MOTO_PYTHON=$python
exec go test -count=1 -v -timeout 60m -run "TestMotoSuite/${1:-}" ./test/moto/suite
