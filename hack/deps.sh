#!/usr/bin/env bash
# Installs the Debian packages that the local region, the assets and the tests need, and names each.
set -euo pipefail
packages=(debootstrap debian-archive-keyring gpgv nftables iproute2 e2fsprogs iptables conntrack libseccomp-dev pkg-config gcc libc6-dev curl ca-certificates python3 util-linux)
missing=()
for p in "${packages[@]}"; do
  dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || missing+=("$p")
done
[[ ${#missing[@]} -eq 0 ]] && exit 0
if ! command -v apt-get >/dev/null; then
  echo "this machine has no apt-get; install the counterparts of these Debian packages by hand:" >&2
  printf '  %s\n' "${packages[@]}" >&2
  exit 1
fi
if [[ $(id -u) != 0 ]]; then
  echo "missing packages (need root): apt-get install ${missing[*]}" >&2
  exit 1
fi
echo "installing Debian packages: ${missing[*]}" >&2
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
