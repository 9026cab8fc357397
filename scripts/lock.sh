#!/usr/bin/env bash
# Resolves pyproject.toml into requirements.lock (what the product needs, and what builds it) and requirements-dev.lock (the
# same and the tools), for every supported Python, with hashes and without any index's address. Arguments go to uv, e.g.
# --upgrade-package pillow.
set -euo pipefail
cd "$(dirname "$0")/.."

uv_release=0.13.8
uv=.cache/uv/bin/uv
if [ "$("$uv" --version 2>/dev/null | cut -d' ' -f2)" != "$uv_release" ]; then
    rm -rf .cache/uv
    scripts/make_venv.sh .cache/uv
    .cache/uv/bin/python -m pip install --quiet --disable-pip-version-check "uv==$uv_release"
fi

resolve() {
    "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header "$@"
}
resolve pyproject.toml --group build -o requirements.lock "$@"
resolve pyproject.toml --group build --group dev -c requirements.lock -o requirements-dev.lock "$@"
