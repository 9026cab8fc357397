#!/usr/bin/env bash
# Brings a program of the distribution where it is missing, PHP with curl or Chromium, and prints the folder that it is in. Exit 1 with
# the reason in the last line of stderr where that can't be done.
set -euo pipefail
cd "$(dirname "$0")/.."

case $1 in
php) packages=(php-cli php-curl) ;;
chromium) packages=(chromium) ;;
*)
    echo "usage: scripts/system_program.sh php|chromium" >&2
    exit 2
    ;;
esac
works() {
    case $program in
    php) "$1" -r 'exit(extension_loaded("curl") ? 0 : 1);' ;;
    *) "$1" --version ;;
    esac >/dev/null 2>&1
}

program=$1
found=$(command -v "$program" || true)
if [ -z "$found" ] || ! works "$found"; then
    if [ "$(id -u)" != 0 ]; then
        # Both look for their parts under /usr, where only root may put them.
        echo "it is not installed, and only root may install it" >&2
        exit 1
    fi
    scripts/debian_packages.sh "${packages[@]}" >/dev/null
    found=$(command -v "$program" || true)
fi
if [ -z "$found" ] || ! works "$found"; then
    echo "the packages ${packages[*]} brought no $program that works" >&2
    exit 1
fi
dirname "$found"
