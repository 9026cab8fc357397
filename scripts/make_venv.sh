#!/usr/bin/env bash
# Makes the virtual environment named by its argument, with pip in it, from the first suitable Python on this machine.
# PYTHON=/path/to/python chooses one. Debian keeps venv's pip in a package of its own: root installs that package, anybody
# else gets virtualenv (which carries its pip along) unpacked into .cache.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=${1:?usage: scripts/make_venv.sh FOLDER}
virtualenv_release=21.15.7

suitable() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null; }

find_python() {
    local candidate seen=()
    for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        if suitable "$candidate"; then
            command -v "$candidate"
            return
        fi
        seen+=("$candidate: $("$candidate" --version 2>/dev/null || echo 'not there')")
    done
    echo "genflow needs Python 3.11, 3.12, 3.13 or 3.14, and none was found:" >&2
    printf '  %s\n' "${seen[@]}" >&2
    echo "Install one, or name it: make PYTHON=/path/to/python3.11 ..." >&2
    return 1
}

has_venv() { "$python" -c 'import ensurepip, venv' 2>/dev/null; }

install_venv_package() {
    local package
    package=python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv
    echo "Installing the package $package, which brings pip to virtual environments ..." >&2
    mkdir -p .cache
    apt-get update -qq &&
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >.cache/apt.log 2>&1
}

make_with_virtualenv() {
    if ! "$python" -m pip --version >/dev/null 2>&1; then
        echo "$python has neither venv (Debian: the package python3-venv) nor pip (the package python3-pip). Install either." >&2
        return 1
    fi
    "$python" -m pip install --quiet --disable-pip-version-check --no-input --upgrade --target .cache/virtualenv \
        "virtualenv==$virtualenv_release"
    PYTHONPATH=.cache/virtualenv "$python" -m virtualenv --quiet --no-download "$venv"
}

python=$(find_python)
trap 'test $? -eq 0 || rm -rf "$venv"' EXIT
if ! has_venv && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    install_venv_package || echo "That package could not be installed (.cache/apt.log says why); trying virtualenv." >&2
fi
if has_venv; then
    "$python" -m venv "$venv"
else
    make_with_virtualenv
fi
"$venv/bin/python" -m pip --version >/dev/null
