#!/usr/bin/env bash
# Prints the folder with the distribution's PostgreSQL programs, fetching the package where it is missing. Exit 1 with the reason
# in the last line of stderr where that can't be done. Only the programs are wanted: no server is started.
set -euo pipefail
cd "$(dirname "$0")/.."

newest() { find "$1" -path '*/bin/postgres' 2>/dev/null | sort -V | tail -n 1; }

postgres=$(newest /usr/lib/postgresql)
if [ -z "$postgres" ]; then
    root=$(scripts/debian_packages.sh postgresql)
    postgres=$(newest "$root/usr/lib/postgresql")
fi
if [ -z "$postgres" ]; then
    echo "the package postgresql brought no postgres program" >&2
    exit 1
fi
"$postgres" --version >&2
dirname "$postgres"
