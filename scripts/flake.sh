#!/usr/bin/env bash
# Runs the tests matching NAME TIMES times, each in a fresh order, and stops at the first failure.
set -euo pipefail
cd "$(dirname "$0")/.."

name=${1:-}
times=${2:-20}
if [ -z "$name" ] || ! [[ $times =~ ^[1-9][0-9]*$ ]]; then
    echo "usage: make flake K=test_name N=20 (K is a pytest -k expression, N the number of runs, 1 or more)" >&2
    exit 2
fi
for ((turn = 1; turn <= times; turn++)); do
    echo "--- run $turn of $times: $name"
    if ! scripts/run_tests.sh -n 0 -x -q -k "$name"; then
        echo "$name failed in run $turn of $times" >&2
        exit 1
    fi
done
echo "$name: $times of $times runs passed"
