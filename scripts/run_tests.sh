#!/usr/bin/env bash
# Runs pytest (arguments go to it), three processes unless JOBS says otherwise: promises mostly wait, also on two cores.
# The last line names what this machine could not run.
set -uo pipefail
cd "$(dirname "$0")/.."

mkdir -p .cache
not_run=()
# The tests that hold on every release of PostgreSQL run on those that PATH and the distribution's folders show.
if bin=$(scripts/system_postgres.sh 2>.cache/system_postgres.log); then
    PATH=$PATH:$bin
else
    not_run+=("the distribution's PostgreSQL ($(tail -n 1 .cache/system_postgres.log))")
fi
if ! scripts/system_rabbitmq.sh >/dev/null 2>.cache/system_rabbitmq.log; then
    not_run+=("RabbitMQ ($(tail -n 1 .cache/system_rabbitmq.log))")
fi
# The clients of tests/sdk: Node's packages for the official TypeScript SDK, PHP, a browser.
if ! scripts/node_packages.sh tests/sdk/typescript 2>.cache/node_packages.log; then
    not_run+=("the TypeScript SDK ($(tail -n 1 .cache/node_packages.log))")
fi
for program in php chromium; do
    if bin=$(scripts/system_program.sh "$program" 2>".cache/system_$program.log"); then
        PATH=$PATH:$bin
    else
        not_run+=("$program ($(tail -n 1 ".cache/system_$program.log"))")
    fi
done

.venv/bin/python -m pytest -n "${JOBS:-3}" --dist loadgroup "$@"
status=$?

if [ ${#not_run[@]} -eq 0 ]; then
    echo "not run here: nothing"
else
    printf -v list '%s; ' "${not_run[@]}"
    echo "not run here: ${list%; }"
fi
exit $status
