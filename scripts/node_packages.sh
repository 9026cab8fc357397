#!/usr/bin/env bash
# Installs a folder's packages by its package-lock.json, with the npm that the Python lock brings; nothing to do where they are there.
# Exit 1 with the reason in the last line of stderr where that can't be done.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=$1
if [ ! "$folder/node_modules/.package-lock.json" -nt "$folder/package-lock.json" ]; then
    PATH=$PWD/.venv/bin:$PATH npm ci --prefix "$folder" --ignore-scripts --silent >&2 || {
        echo "npm ci failed in $folder" >&2
        exit 1
    }
fi
