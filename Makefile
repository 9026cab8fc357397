# Every command of the repository. `make` alone lists them; CI runs `make check test` through .ci/run.
# On a fresh machine Python 3.11 or newer with pip, and make, are enough: each command installs what it needs, from the locks.

SHELL := bash
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
# A stamp is newer than the lock it was made from, so that a second `make` installs nothing.
PRODUCT := $(VENV)/.product
TOOLS := $(VENV)/.tools

N ?= 20
KEEP ?=
MINUTES ?= 3
SEED ?=
K ?=
ONLY ?=
ARGS ?=

.PHONY: help demo test check sdk bench chaos mutants flake lock format docs install clean

help: ## List the commands
	@grep -hE '^[a-z]+:.*## ' Makefile | sed -E 's/:.*## /|/' | awk -F'|' '{printf "  make %-8s %s\n", $$1, $$2}'

demo: $(PRODUCT) ## Show the whole thing on this machine, no GPU needed (KEEP=1 leaves it running)
	KEEP=$(KEEP) $(BIN)/python examples/demo.py

test: $(TOOLS) ## Run the tests (K=name runs those matching, ARGS=... goes to pytest)
	@scripts/run_tests.sh $(if $(K),-k "$(K)") $(ARGS)

check: $(TOOLS) ## Lint, types, import rules, documentation, house rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q -p no:randomly tests/unit/test_repository_*.py

sdk: $(TOOLS) ## Drive genflow with the official Python and TypeScript SDKs, and with the documentation's clients
	@scripts/run_tests.sh -v tests/sdk

bench: $(TOOLS) ## Measure the benchmarks' figures and write them into docs/benchmarks.md (ONLY=name one of them)
	$(BIN)/python -m bench $(ONLY)

chaos: $(TOOLS) ## Attack genflow and check every promise (MINUTES=60 longer, SEED=N another plan)
	@scripts/system_rabbitmq.sh >/dev/null || true
	$(BIN)/python -m chaos --minutes "$(MINUTES)" $(if $(SEED),--seed "$(SEED)") $(ARGS)

mutants: $(TOOLS) ## Attack genflow with one rule broken, each of them in turn: chaos must see it (ARGS=name for one)
	@scripts/system_rabbitmq.sh >/dev/null || true
	$(BIN)/python -m chaos.mutants $(ARGS)

flake: $(TOOLS) ## Run the tests matching K N times, stop at the first failure (make flake K=test_name N=20)
	@scripts/flake.sh "$(K)" "$(N)"

lock: ## Resolve pyproject.toml again into both locks
	scripts/lock.sh

format: $(TOOLS) ## Format the code and mend what the linter can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(TOOLS) ## Write the reference pages that are made from the code again
	$(BIN)/python -m scripts.docs_reference

install: $(PRODUCT) ## Install genflow into .venv

clean: ## Remove everything that these commands made
	rm -rf $(VENV) .cache build dist out .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	scripts/make_venv.sh $(VENV)

$(PRODUCT): requirements.lock pyproject.toml | $(BIN)/python
	$(PIP) install --quiet --require-hashes -r requirements.lock
	$(PIP) install --quiet --no-deps --no-build-isolation -e .
	@touch $@

$(TOOLS): requirements-dev.lock $(PRODUCT)
	$(PIP) install --quiet --require-hashes -r requirements-dev.lock
	@touch $@
