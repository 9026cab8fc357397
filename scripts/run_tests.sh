#!/usr/bin/env bash
# Runs pytest (arguments go to it), two processes unless JOBS says otherwise. The last line names what this machine could not run.
set -uo pipefail
cd "$(dirname "$0")/.."

mkdir -p .cache
not_run=()
without=()
if bin=$(scripts/system_postgres.sh 2>.cache/system_postgres.log); then
    export SYSTEM_POSTGRES_BIN=$bin
else
    unset SYSTEM_POSTGRES_BIN
    without+=(-m "not system_postgres")
    not_run+=("system_postgres ($(tail -n 1 .cache/system_postgres.log))")
fi

.venv/bin/python -m pytest -n "${JOBS:-2}" --dist loadgroup "${without[@]}" "$@"
status=$?

if [ ${#not_run[@]} -eq 0 ]; then
    echo "not run here: nothing"
else
    echo "not run here: $(printf '%s; ' "${not_run[@]}" | sed 's/; $//')"
fi
exit $status
