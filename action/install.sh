#!/usr/bin/env bash
# Installs slipway from its release, if the archive has the expected SHA-256.
set -euo pipefail
: "${INPUT_VERSION:?}" "${RUNNER_TEMP:?}" "${GITHUB_PATH:?}"
if [[ -z ${INPUT_SHA256:-} ]]; then
  echo "::error::set sha256 to that of the archive in checksums.txt of $INPUT_VERSION"
  exit 1
fi
case $(uname -m) in
  x86_64) arch=amd64 ;;
  aarch64) arch=arm64 ;;
  *) echo "::error::slipway has no release for $(uname -m)"; exit 1 ;;
esac
name="slipway_${INPUT_VERSION#v}_linux_$arch.tar.gz"
base=${SLIPWAY_RELEASES:-https://github.com/slipway-k8s/slipway/releases/download}
dir="$RUNNER_TEMP/slipway"
mkdir -p "$dir"
curl --fail --silent --show-error --location --retry 3 --output "$dir/$name" "$base/$INPUT_VERSION/$name"
if ! echo "$INPUT_SHA256  $dir/$name" | sha256sum --check --quiet; then
  echo "::error::$name does not have the SHA-256 $INPUT_SHA256; it was not installed"
  rm -f "$dir/$name"
  exit 1
fi
tar -xzf "$dir/$name" -C "$dir"
echo "$dir" >>"$GITHUB_PATH"
