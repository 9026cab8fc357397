"""Benchmarks: each prints ratios measured side by side in one run. `make bench ONLY=name` runs one."""
