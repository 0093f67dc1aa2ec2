#!/usr/bin/env bash
# Checks that packages are reproducible: builds them here, and once more from a clone of the last commit at another path.
# Both must be the same, byte by byte. Uncommitted changes would be in one of them only, so there must be none.
set -euo pipefail
cd "$(dirname "$0")/.."
if [[ -n $(git status --porcelain) ]]; then
  echo "packages-check: commit or stash your changes first" >&2
  exit 1
fi
other=$(mktemp -d)
trap 'rm -rf "$other"' EXIT
git clone --quiet --no-hardlinks . "$other/another path"
hack/packages.sh -out dist "$@"
(cd "$other/another path" && hack/packages.sh -out "$other/dist" "$@")
diff -r dist "$other/dist"
echo "packages-check: $(wc -l <dist/checksums.txt) files are the same, byte by byte"
