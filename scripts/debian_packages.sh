#!/usr/bin/env bash
# Brings Debian packages to this machine and prints the root folder they are under. Root installs them with apt, starting no
# service (the printed folder is empty, meaning /). Anybody else gets them, with what they depend on and is missing, unpacked into
# .cache/debian. Exit 1, the reason in the last line of stderr, where neither can be done.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ $# -eq 0 ]; then
    echo "usage: scripts/debian_packages.sh NAME..." >&2
    exit 2
fi
fail() {
    echo "$1" >&2
    exit 1
}
command -v apt-get >/dev/null && command -v dpkg >/dev/null || fail "no apt on this machine"

install_as_root() {
    # A policy-rc.d answering 101 keeps a package from starting its service; one that is there already is somebody's choice.
    local policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
        trap 'rm -f /usr/sbin/policy-rc.d' EXIT
    fi
    apt-get update -qq >&2 || fail "apt-get update failed"
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >&2 || fail "apt-get install $* failed"
}

unpack_for_user() {
    local cache=$PWD/.cache/debian wanted deb
    local stamp=$cache/.unpacked-$(printf '%s-' "$@")
    [ -e "$stamp" ] && return
    mkdir -p "$cache/lists/partial" "$cache/archives/partial"
    # The package lists go into the cache too: the system's may be missing, and only root may refresh them.
    local apt=(apt-get -o "Dir::State::Lists=$cache/lists" -o "Dir::Cache=$cache" -o Debug::NoLocking=1)
    "${apt[@]}" update -qq >&2 || fail "apt-get update failed"
    wanted=$("${apt[@]}" -s -qq install --no-install-recommends "$@" | sed -n 's/^Inst \([^ ]*\).*/\1/p') ||
        fail "apt can not install $*: no such package, or no network"
    [ -n "$wanted" ] || fail "$* is installed, yet was not found"
    # shellcheck disable=SC2086 # one word a package
    (cd "$cache/archives" && "${apt[@]}" download -qq $wanted >&2) || fail "apt-get download failed"
    for deb in "$cache"/archives/*.deb; do
        dpkg -x "$deb" "$cache" || fail "$(basename "$deb") could not be unpacked"
    done
    rm -rf "$cache/archives" "$cache/lists" "$cache"/*.bin
    touch "$stamp"
}

if [ "$(id -u)" = 0 ]; then
    install_as_root "$@"
    echo ""
else
    unpack_for_user "$@"
    echo "$PWD/.cache/debian"
fi
