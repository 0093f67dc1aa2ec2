#!/usr/bin/env bash
# Makes an archive of a minimal Debian 12 root, unless it exists: hack/debian-root.sh ARCHIVE. Needs root and debootstrap.
set -euo pipefail
archive=$1
[[ -f $archive ]] && exit 0
mkdir -p "$(dirname "$archive")"
work=$(mktemp -d "$(dirname "$archive")/.debian-root-XXXXXX")
trap 'rm -rf "$work"' EXIT
mirror=$(grep -rhE '^(deb |URIs:)' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null | grep -oE 'https?://[^ ]+/debian/?( |$)' | head -1 || true)
debootstrap --force-check-gpg --variant=minbase bookworm "$work/root" ${mirror:+"$mirror"} >"$work/log" 2>&1 || { tail -5 "$work/log" >&2; exit 1; }
rm -rf "$work"/root/var/cache/apt/archives/*.deb "$work"/root/var/lib/apt/lists/*
tar -C "$work/root" --numeric-owner -cpf "$work/archive" .
mv "$work/archive" "$archive"
