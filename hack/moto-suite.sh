#!/usr/bin/env bash
# Runs the tests of moto that test/moto/suite/suite.txt lists, against the local region without machines.
#
#   hack/moto-suite.sh             all services
#   hack/moto-suite.sh test_ec2    one service
#
# MOTO_TESTS is a checkout of moto, whose folder tests is used; by default moto below the cache directory, which this script
# clones from MOTO_REPOSITORY. MOTO_PYTHON is a Python with moto; by default python3. If it has no pytest, Debian's packages of
# pytest are unpacked into the cache directory, and nothing is installed. Exits 0 with a reason if something cannot be had.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/goflags.sh

skip() {
  printf 'SKIPPED: %s\n' "$*"
  exit 0
}

# unpack_pytest unpacks Debian's packages of pytest, and what it imports, into a folder of the cache directory.
unpack_pytest() {
  local target=$cache/pytest
  [[ -f $target/done ]] && return
  command -v apt-get >/dev/null || return
  rm -rf "$target"
  mkdir -p "$target/packages"
  (cd "$target/packages" && apt-get download -qq "${pytest_packages[@]}") || return
  local package
  for package in "$target"/packages/*.deb; do
    dpkg -x "$package" "$target" || return
  done
  touch "$target/done"
}

cache=${SLIPWAY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/slipway}
pytest_packages=(python3-pytest python3-pluggy python3-iniconfig python3-packaging python3-py python3-attr python3-exceptiongroup python3-tomli)
python=${MOTO_PYTHON:-python3}
command -v "$python" >/dev/null || skip "no $python to run moto's tests with"
version=$("$python" -c 'import moto; print(moto.__version__)' 2>/dev/null) || skip "$python has no moto"

tests=${MOTO_TESTS:-$cache/moto}
clone=(git clone --quiet --depth 1 --branch "$version" "${MOTO_REPOSITORY:-https://github.com/getmoto/moto}" "$tests")
if [[ ! -f $tests/tests/test_ec2/test_instances.py ]]; then
  [[ -z ${MOTO_TESTS:-} ]] || skip "no tests of moto in $tests: ${clone[*]}"
  "${clone[@]}" || skip "moto cannot be cloned: ${clone[*]}"
fi

if ! "$python" -c 'import pytest' 2>/dev/null; then
  unpack_pytest >&2 || skip "$python has no pytest: pip install pytest, or set PYTHONPATH to a folder that has only pytest and what it imports"
  export PYTHONPATH=$cache/pytest/usr/lib/python3/dist-packages${PYTHONPATH:+:$PYTHONPATH}
  "$python" -c 'import pytest' || skip "$python cannot import Debian's pytest: pip install pytest"
fi

export MOTO_TESTS=$tests MOTO_PYTHON=$python
exec go test -count=1 -v -timeout 60m -run "TestMotoSuite/${1:-}" ./test/moto/suite
