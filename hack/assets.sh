#!/usr/bin/env bash
# Builds what machines download; cached by content.
set -euo pipefail
cd "$(dirname "$0")/.."
bin/slipway assets build --source assets
