# Everything a developer runs. Each target makes .venv from the lock first, if it is missing or older
# than the lock; nothing is installed outside this checkout. Needs: make, Python 3.11+, and Docker or
# Java 17+ with Maven for a broker.

.DEFAULT_GOAL := help
.PHONY: help up compiled demo test quick check lint types contracts tests walk sim mutants chaos scenarios fuzz bench peers lock fmt clean

# A distribution's Python first: it is built with all optimisations, and runs the server a quarter faster
# than one that was compiled here in the usual way (docs/benchmarks.md).
PYTHON ?= $(shell for p in /usr/bin/python3 python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && \
		{ echo $$p; break; }; done)
VENV := .venv/installed
RUN := .venv/bin/python

# Test files are spread over processes. Those of all tests wait more than they compute, and each has a
# broker of its own: some more than two cores, and no more on large machines.
WORKERS ?= 3
SPREAD := --dist loadfile --no-loadscope-reorder

# The client library is used from its folder here, and published from there.
export PYTHONPATH := $(CURDIR):$(CURDIR)/clients/python
export PIP_DISABLE_PIP_VERSION_CHECK := 1

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/\1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 12

$(VENV): requirements-dev.lock
	@test -n "$(PYTHON)" || { echo "Horarium needs Python 3.11 or newer, and found none." >&2; exit 1; }
	@test -x $(RUN) || $(PYTHON) -m venv .venv
	@echo "Installing the packages of requirements-dev.lock into .venv"
	@$(RUN) -m pip install --quiet --require-hashes --requirement requirements-dev.lock
	@touch $@

up: $(VENV) ## run the whole server in the foreground
	@exec $(RUN) -m dev.up

compiled: $(VENV) ## the engine as machine code, for up, demo, bench and peers, where there is a C compiler
	@$(RUN) -m dev.compiled

demo: $(VENV) ## a tour: start, schedule, kill, watch it go on
	@exec $(RUN) -m dev.demo

test: $(VENV) ## everything: lint, types, contracts, all tests, with a real broker and database
	@status=0; for step in lint types tests; do \
		$(MAKE) --no-print-directory $$step || status=1; done; exit $$status

check: $(VENV) lint types ## all that needs no broker and no database
	@$(RUN) -m pytest -q -n auto $(SPREAD) -m "not kafka and not postgres and not slow and not long"

quick: $(VENV) lint types ## the minute before a commit: lint, types, contracts, unit tests
	@$(RUN) -m pytest -q -n auto $(SPREAD) -m "not kafka and not postgres and not slow and not long" \
		tests/test_contracts.py tests/test_tidy.py tests/unit

lint: $(VENV) ## ruff: rules and format
	@$(RUN) -m ruff check
	@$(RUN) -m ruff format --check

types: $(VENV) ## mypy, strict
	@$(RUN) -m mypy

contracts: $(VENV) ## who may import whom
	@$(RUN) -m pytest -q tests/test_contracts.py

tests: $(VENV) ## all tests, in processes side by side (WORKERS=3)
	@$(RUN) -m dev.kafka
	@$(RUN) -m pytest -n $(WORKERS) $(SPREAD) -m "not long"

walk: $(VENV) ## schedules against the slow reference at every offset change of every zone (15 minutes)
	@$(RUN) -m pytest -m long

chaos: $(VENV) ## three brokers and real processes under every fault, judged by the checker (MINUTES=4 SEED=1)
	@exec $(RUN) -m dev.chaos --minutes $(or $(MINUTES),4) $(if $(SEED),--seed $(SEED))

scenarios: $(VENV) ## worker fleet crash, top of the hour, failover of the log: with the expected result checked
	@exec $(RUN) -m dev.chaos.scenarios

sim: $(VENV) ## the whole cluster under faults in virtual time: SEEDS=1000, or SEED=7 with its ledger
	@PYTHONHASHSEED=0 $(RUN) -m tests.simulation $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),100))

fuzz: $(VENV) ## schemathesis against the OpenAPI description of a running server (EXAMPLES=30)
	@$(RUN) -m dev.kafka
	@FUZZ_EXAMPLES=$(or $(EXAMPLES),30) $(RUN) -m pytest -q tests/integration/test_openapi_fuzz.py

mutants: $(VENV) ## deliberate breaks of the product, and how many seeds the simulation takes to find each (NAMES=)
	@$(RUN) -m tests.simulation.mutants $(NAMES)

bench: $(VENV) compiled ## a quick set of benchmarks; docs/benchmarks.md says how to read them (8 minutes)
	@$(RUN) -m dev.kafka
	@$(RUN) -m bench.core --registered 10000 100000
	@$(RUN) -m bench.next_occurrence --hashed 200000
	@$(RUN) -m bench.processor -n 10000
	@$(RUN) -m bench.dispatch -n 10000
	@$(RUN) -m bench.registration -n 1000 --batches 10
	@$(RUN) -m bench.killed --seconds 20
	@$(RUN) -m bench.fairness flood -n 5000
	@$(RUN) -m bench.fairness midnight -n 5000 --tenants 100
	@for shards in 1 8; do \
		$(RUN) -m bench.steady --shards $$shards && $(RUN) -m bench.herd -n 10000 --shards $$shards || exit 1; \
	done

peers: $(VENV) compiled ## other schedulers under the same load in the same run (Go, Java, PostgreSQL; 15 minutes)
	@$(RUN) -m dev.kafka
	@$(RUN) -m bench.peers

fmt: $(VENV) ## format, and fix what ruff can fix
	@$(RUN) -m ruff check --fix
	@$(RUN) -m ruff format

lock: $(VENV) ## pin the packages again (UPGRADE=1: the newest)
	@$(RUN) -m dev.lock $(if $(UPGRADE),--upgrade)

clean: ## remove .venv and all caches; the server's data (.horarium) stays
	@rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
