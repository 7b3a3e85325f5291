# One entry for people, hooks and CI. `make` alone prints the targets.
SHELL := /bin/sh
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
CODE := $(wildcard src tests benchmarks codegen examples)

# Crash campaigns: how many rounds, and the seed that replays one.
ROUNDS ?= 200
SEED ?=
# Handed on, e.g. make demo DEMO_ARGS="--for 20s", make test PYTEST_ARGS="tests/log -x".
DEMO_ARGS ?=
PYTEST_ARGS ?=
BENCH_ARGS ?=
CRASH_ARGS ?=
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-newcomer lint format lock peers bench docs

help:
	@echo "make setup            all that development needs, in .venv"
	@echo "make demo             install the package alone and watch it work"
	@echo "make test             every test; absent peers are skipped and named"
	@echo "make test-newcomer    the README's two commands on a bare machine"
	@echo "make lint             ruff, mypy, import contracts"
	@echo "make peers            fetch Apache Kafka, kcat and the other clients"
	@echo "make peers-pyflink    fetch PyFlink, for make bench-nexmark"
	@echo "make bench            every benchmark; make bench-NAME for one"
	@echo "make crash-NAME       a crash campaign (ROUNDS=200 SEED=...)"
	@echo "make docs             write the reference, run the snippets, build the site"

# Debian keeps ensurepip in a package of its own; a pip that is already there can stand in for it.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Headwater needs Python 3.11 or newer: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@if $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null; then \
	  $(PYTHON) -m venv $(VENV); \
	elif $(PYTHON) -c 'import pip, venv' 2>/dev/null; then \
	  $(PYTHON) -m venv --without-pip $(VENV) && \
	  $(PYTHON) -m pip --quiet --python $(BIN)/python install pip || { rm -rf $(VENV); exit 1; }; \
	else \
	  echo "$(PYTHON) cannot make virtual environments: its venv or ensurepip module is missing." >&2; \
	  echo "On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; \
	fi

# A stamp is newer than all it was made from, so that a second run costs nothing.
$(VENV)/run.stamp: $(BIN)/python pyproject.toml requirements/run.txt
	$(PIP) install --quiet --only-binary :all: -r requirements/run.txt
	$(PIP) install --quiet --no-deps -e .
	@touch $@

# PySpark is published as source alone; there is nothing in it to compile.
$(VENV)/spark.stamp: $(VENV)/run.stamp requirements/spark.txt
	$(PIP) install --quiet --only-binary :all: --no-binary pyspark -r requirements/spark.txt
	@touch $@

$(VENV)/dev.stamp: $(VENV)/spark.stamp requirements/dev.txt
	$(PIP) install --quiet --only-binary :all: --no-binary pyspark -r requirements/dev.txt
	@touch $@

setup: $(VENV)/dev.stamp

demo: $(VENV)/spark.stamp
	$(BIN)/headwater demo $(DEMO_ARGS)

# A file stays on one worker: its tests share brokers, and one that needs a core alone keeps it.
test: setup
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --durations 15 $(PYTEST_ARGS)

test-newcomer:
	$(PYTHON) tests/newcomer/run.py

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(CODE)
	@# Its cache keeps imports of modules that have since moved and then finds broken contracts.
	$(BIN)/lint-imports --no-cache

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The lock files name exact versions and no host; uv is needed only by whoever changes a dependency.
lock: setup
	$(PIP) install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-header --no-emit-index-url \
	  --group dev --all-extras -o requirements/dev.txt pyproject.toml
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-header --no-emit-index-url \
	  -c requirements/dev.txt -o requirements/run.txt pyproject.toml
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-header --no-emit-index-url \
	  --extra spark --extra java -c requirements/dev.txt -o requirements/spark.txt pyproject.toml

peers: setup
	$(BIN)/python -m tests.peers.fetch

peers-%: setup
	$(BIN)/python -m tests.peers.fetch $*

bench: setup
	$(BIN)/python -m benchmarks $(BENCH_ARGS)

bench-%: setup
	$(BIN)/python -m benchmarks.$(subst -,_,$*) $(BENCH_ARGS)

crash-%: setup
	$(BIN)/python -m tests.crash.$(subst -,_,$*) --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED)) $(CRASH_ARGS)

docs: setup
	$(BIN)/python -m codegen.reference_pages
	$(BIN)/python -m pytest tests/docs -q
	$(BIN)/zensical build --clean --strict
