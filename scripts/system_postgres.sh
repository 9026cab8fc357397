#!/usr/bin/env bash
# Prints the folder with the distribution's PostgreSQL programs, fetching the package where it is missing. Exit 1 with the reason
# in the last line of stderr where that can't be done. Only the programs are wanted: no server is started.
set -euo pipefail
cd "$(dirname "$0")/.."

newest() { (find "$1" -path '*/bin/postgres' 2>/dev/null || true) | sort -V | tail -n 1; }

postgres=$(newest /usr/lib/postgresql)
if [ -z "$postgres" ]; then
    root=$(scripts/debian_packages.sh postgresql)
    postgres=$(newest "$root/usr/lib/postgresql")
fi
if [ -z "$postgres" ]; then
    echo "the package postgresql brought no postgres program" >&2
    exit 1
fi
bin=$(dirname "$postgres")
if [ -n "${root:-}" ]; then
    # Unpacked programs need the libraries unpacked beside them. Programs of the same names set that up, for themselves alone.
    libraries=$root/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null || uname -m | sed 's/$/-linux-gnu/')
    mkdir -p "$root/bin"
    for program in "$bin"/*; do
        printf '#!/bin/sh\nLD_LIBRARY_PATH=%q exec %q "$@"\n' "$libraries" "$program" >"$root/bin/${program##*/}"
        chmod 755 "$root/bin/${program##*/}"
    done
    bin=$root/bin
fi
"$bin/postgres" --version >&2
echo "$bin"
