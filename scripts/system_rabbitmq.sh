#!/usr/bin/env bash
# Brings the distribution's RabbitMQ where it is missing; prints the root folder that its programs are under (/ unless unpacked). Exit 1
# with the reason in the last line of stderr where that can't be done. Only the programs are wanted: no node is started.
set -euo pipefail
cd "$(dirname "$0")/.."

server() { (find "$1/usr/lib/rabbitmq/lib" -path '*/sbin/rabbitmq-server' 2>/dev/null || true) | sort -V | tail -n 1; }

root=
if [ -z "$(server "$root")" ]; then
    root=$(scripts/debian_packages.sh rabbitmq-server)
fi
if [ -z "$(server "$root")" ]; then
    echo "the package rabbitmq-server brought no server" >&2
    exit 1
fi
if [ -n "$root" ]; then
    # Erlang's own starter knows one place only. Ours, first on the PATH of a test's node, starts the one that was unpacked.
    libraries=$root/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null || uname -m | sed 's/$/-linux-gnu/')
    runtime=$(find "$root/usr/lib/erlang" -maxdepth 1 -name 'erts-*' | sort -V | tail -n 1)
    mkdir -p "$root/bin"
    printf '#!/bin/sh\nexport ROOTDIR=%q BINDIR=%q EMU=beam PROGNAME=erl LD_LIBRARY_PATH=%q\nexec "$BINDIR/erlexec" "$@"\n' \
        "$root/usr/lib/erlang" "$runtime/bin" "$libraries" >"$root/bin/erl"
    ln -sf "$runtime/bin/epmd" "$root/bin/epmd"
    chmod 755 "$root/bin/erl"
fi
echo "${root:-/}"
