# Commands a person types. `make help` lists them; TORCH, PYTHON, FILE and ARGS can be set on the command line.
PYTHON ?= python3
TORCH ?= torch==2.13.0
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
FILE ?= infra/campaigns/quickstart.yaml
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup quickstart test check bench bench-timing bench-rollouts dashboard clean

help: ## list the commands
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## prepare .venv with everything in it and compile the judge's glue, once
	@$(BIN)/cuda-agent setup

$(STAMP): pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is missing: install Python 3.11 or newer (Debian: apt-get install python3 python3-venv)" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is older than 3.11: name a newer one with make setup PYTHON=python3.12" >&2; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "$(PYTHON) cannot make environments: install its venv module (Debian: apt-get install python3-venv)" >&2; exit 2; }
	@command -v g++ >/dev/null || { echo "g++ is missing, and kernels are compiled with it: install it (Debian: apt-get install g++)" >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing $(TORCH) and the other packages into $(VENV): 1.4 GB without CUDA, some minutes …"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check "$(TORCH)" -e ".[dev]"
	@touch $@

quickstart: setup ## run the whole loop on this machine and print the report (FILE=… for another campaign)
	$(BIN)/cuda-agent campaign run $(FILE) $(ARGS)

test: setup ## run the tests (ARGS='tests/store -k blobs' for a part)
	$(BIN)/python -m pytest $(ARGS)

check: $(STAMP) ## lint, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup ## submissions judged an hour, by style (ARGS="--backend cuda" on a GPU)
	$(BIN)/python -m tests.bench.judge_speed $(ARGS)

bench-timing: setup ## how exact the judge's times are (ARGS='--runs 20' for a quick look)
	$(BIN)/python -m tests.bench.judge_timing $(ARGS)

bench-rollouts: setup ## what rollouts cost beside generation and tools (ARGS='--episodes 64')
	$(BIN)/python -m tests.bench.rollout_speed $(ARGS)

dashboard: setup ## start the services and print the dashboard's address
	$(BIN)/cuda-agent dashboard $(ARGS)

clean: ## stop the services and remove all that was made: state, caches, builds, .venv
	@test ! -x $(BIN)/cuda-agent || $(BIN)/cuda-agent clean $(ARGS)
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
