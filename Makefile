# One entry point for people and CI. Every target creates what it needs; `make demo` and `make test` work on a
# fresh machine with git, make and Python 3.11 or newer.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python
ROOTS := operator:crds:reconcilers:broker_image:spark
export PYTHONPATH := $(CURDIR)/operator:$(CURDIR)/crds:$(CURDIR)/reconcilers:$(CURDIR)/broker_image:$(CURDIR)/spark
# Tests start some hundred processes; each would compile all its modules again.
export PYTHONDONTWRITEBYTECODE :=
SEEDS ?= 200
JOBS ?= 2
# Files of tests run side by side; most of the time those with processes of their own wait for intervals.
IN_PARALLEL := --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder
SELECT ?= 'not long'
STAMP := $(VENV)/.supercluster-stamp

.PHONY: help setup check format test test-one test-all test-spark smoke compat kube-table compat-restless sim sim-mutants fuzz demo e2e e2e-kube e2e-kind e2e-moves e2e-cutover e2e-restless demo-cutover bench bench-moves bench-cutovers bench-repairs bench-turns bench-operator bench-spark image crds docs clean

help: ## Show this help
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 16

$(STAMP): pyproject.toml constraints.txt
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --upgrade pip
	$(PY) -m pip install --quiet --editable '.[dev,bench]' --constraint constraints.txt
	touch $@

setup: $(STAMP) ## Create the virtual environment with everything in it

check: $(STAMP) ## Check format, lint, types, import contracts, generated files, and that mutants apply (under 2 minutes)
	$(PY) -m ruff format --check --quiet .
	$(PY) -m ruff check --quiet .
	$(PY) -m mypy
	$(VENV)/bin/lint-imports --cache-dir .cache/import-linter
	$(PY) -m pytest --quiet --numprocesses 0 tests/test_contracts.py tests/test_architecture.py tests/test_words.py -k 'not can_fail'
	$(PY) -m supercluster.api.generate --check
	$(PY) -m supercluster.app.cli.reference --check docs/reference/cli.md
	$(PY) -m tests.compat.documents --check
	$(PY) -m tests.simulator.mutants --check

format: $(STAMP) ## Rewrite the code in the project's format
	$(PY) -m ruff format --quiet .
	$(PY) -m ruff check --fix --quiet .

test: $(STAMP) ## Run unit, property, simulator and end-to-end tests once, on the embedded control plane (about 20 minutes)
	$(PY) -m pytest tests -m $(SELECT) $(IN_PARALLEL)

test-one: export TEST_ID := $(value TEST)
test-one: $(STAMP) ## Run one test, file or folder: make test-one TEST='tests/api/test_units.py'
	$(if $(TEST),,$(error TEST is empty; say which: make test-one TEST='tests/api/test_units.py'))
	$(PY) -m pytest --numprocesses 0 "$$TEST_ID"

test-all: $(STAMP) ## Run everything: all tests, 2,000 seeds, all mutants, long matrices, Python 3.13 (hours; ONLY='seeds mutants')
	$(PY) -m tests.support.all_parts --jobs $(JOBS) $(ONLY)

smoke: $(STAMP) ## Run the tests that depend on the Python version: imports, definitions, reconcilers, NATS's newest clients (under 2 minutes)
	$(PY) -m pytest tests/test_imports.py tests/api tests/reconcilers tests/py_clients -m 'not long' $(IN_PARALLEL)

sim: $(STAMP) ## Run the simulator: make sim SEEDS=2000 (replay one: make sim SEED=17, MOVES=1: all with moves, CUTOVER=1: all as cutovers)
	$(PY) -m tests.simulator.run --seeds $(SEEDS) --jobs $(JOBS) $(if $(SEED),--seed $(SEED) --verbose) $(if $(MOVES),--moves) $(if $(CUTOVER),--cutover)

sim-mutants: $(STAMP) ## Remove each safety rule from a copy of the code, and show that the simulator notices
	$(PY) -m tests.simulator.mutants --jobs $(JOBS)

fuzz: $(STAMP) ## Send random input to real brokers, kill them, and check that they recover (an hour; SECONDS=600 SEED=17, ONCE=1: that seed)
	$(PY) -m tests.fuzz.run $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED)) $(if $(ONCE),--once)

test-spark: ## Run Spark's tests on another supported Spark, in a separate virtual environment (ten minutes; SPARK=4.2.1)
	$(MAKE) VENV=$(VENV)-spark setup
	$(VENV)-spark/bin/python -m pip install --quiet 'pyspark==$(or $(SPARK),4.2.1)'
	$(VENV)-spark/bin/python -m pytest tests/spark -m 'not long' $(IN_PARALLEL)

compat: $(STAMP) ## Compare our brokers with nats-server through NATS clients, one behaviour per row (one: ONLY='core.ping')
	$(PY) -m pytest tests/compat -q $(if $(ONLY),-k '$(ONLY)')

kube-table: $(STAMP) ## Compare a real kube-apiserver with the answers recorded for the embedded one (KUBE_ASSETS=DIR; RECORD=1 writes them)
	KUBE_ASSETS=$(KUBE_ASSETS) $(PY) -m $(if $(RECORD),tests.localplane.kube_table.record,pytest -q -n0 tests/localplane/kube_table)

compat-restless: $(STAMP) ## Run the rows of compat while leaders step down and streams move between clusters (about 15 minutes; COMPAT_SEED=7)
	COMPAT_RESTLESS=all $(PY) -m pytest tests/compat/test_restless.py -q $(if $(ONLY),-k '$(ONLY)')

demo: $(STAMP) ## Run the demo on the embedded control plane: brokers, clients, a killed leader, pipelines (KEEP=1 leaves it running)
	$(PY) -m e2e.demo $(if $(KEEP),--keep)

demo-cutover: $(STAMP) ## Migrate a live super-cluster to another one with one manifest, while ten clients work (under three minutes)
	$(PY) -m e2e.cutover.demo $(if $(WAY),--way $(WAY)) $(if $(RATE),--rate $(RATE))

e2e: $(STAMP) ## Run only the end-to-end tests of make test
	$(PY) -m pytest tests -m '(e2e or spark) and not long' $(IN_PARALLEL)

e2e-kube: export SUPERCLUSTER_KUBE_ASSETS := $(abspath $(KUBE_ASSETS))
e2e-kube: $(STAMP) ## Run the end-to-end tests, the demo and the guide to a cutover on Kubernetes' own control plane (KUBE_ASSETS=DIR, as setup-envtest makes it; ONLY='chart')
	$(if $(KUBE_ASSETS),,$(error KUBE_ASSETS is empty; name a folder with etcd, kube-apiserver, kube-controller-manager and kube-scheduler))
	$(PY) -m pytest tests/app tests/e2e_demo tests/e2e_cutover/test_cutover_guide.py tests/localplane/test_on_kubernetes.py -m '(e2e or spark) and not long' $(IN_PARALLEL) $(if $(ONLY),-k '$(ONLY)')

e2e-kind: $(STAMP) ## Run the demo on a kind cluster (needs an engine, kind, kubectl and helm; KEEP=1 leaves it)
	$(PY) -m e2e.kind $(if $(KEEP),--keep)

e2e-moves: $(STAMP) ## Run moves under load with kills and cuts at every stage, as a table (about 25 minutes; ONLY='leader at joint')
	$(PY) -m e2e.moves $(if $(ONLY),--only '$(ONLY)') $(if $(TOPOLOGY),--topology $(TOPOLOGY))

e2e-cutover: $(STAMP) ## Run cutovers under load with kills, stops and cuts at every stage, as a table (half an hour; WAY=direct ONLY='clean')
	$(PY) -m e2e.cutover $(if $(ONLY),--only '$(ONLY)') $(if $(WAY),--way $(WAY)) $(if $(RATE),--rate $(RATE))

e2e-restless: $(STAMP) ## Run the operator while edits, deletions and kills come at random, and audit every message (SEED=7 MINUTES=10)
	$(PY) -m e2e.restless $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES))

bench-moves: $(STAMP) ## Measure moves, step-down and killed leader under load beside nats-server, as a table (RUNS=1 ONLY=move-ids-starved; PART=100: so many times fewer messages)
	$(PY) -m benchmarks.moves $(if $(RUNS),--runs $(RUNS)) $(foreach one,$(ONLY),--only $(one)) $(if $(PART),--part $(PART))

bench-cutovers: $(STAMP) ## Measure the waits of publishers while six streams are cut over, beside the quiet time and the limit (RUNS=3; half a minute each; RATE=1000)
	$(PY) -m benchmarks.cutovers $(if $(RUNS),--runs $(RUNS)) $(if $(RATE),--rate $(RATE))

bench-repairs: $(STAMP) ## Measure lost brokers, rolling restarts and the planner of repairs, as a table (about 45 minutes; RUNS=1 ONLY=rolling)
	$(PY) -m benchmarks.repairs $(if $(RUNS),--runs $(RUNS)) $(if $(ONLY),--only $(ONLY))

bench-turns: $(STAMP) ## Measure the longest turn of a broker's loop on large streams, as a table (SIZE=small: half a minute; ONLY=wide)
	$(PY) -m benchmarks.turns $(if $(filter small,$(SIZE)),--small) $(if $(ONLY),--only $(ONLY))

bench-operator: $(STAMP) ## Measure the operator's processor time and writes with 3,000 busy Streams of three StreamMoves each (two minutes; RUNS=3)
	$(PY) -m benchmarks.operator $(if $(RUNS),--runs $(RUNS))

bench-spark: $(STAMP) ## Measure Spark's reads and writes beside a source and a sink without I/O (an hour; ROWS=1000000 RUNS=3: ten minutes; OUT=NAME)
	$(PY) -m benchmarks.spark.speed $(if $(ROWS),--rows $(ROWS)) $(if $(RUNS),--runs $(RUNS)) $(if $(OUT),--out $(OUT))

bench: $(STAMP) ## Run the benchmarks beside nats-server, as a table
	$(PY) -m benchmarks.run

image: ## Build the images (needs a container engine; BASE=… gives another base image)
	./tools/build-images.sh

locks: $(STAMP) ## Write the lock files of the images, with hashes, from constraints.txt (asks the package index)
	$(PY) -m tools.lock_images

crds: $(STAMP) ## Generate the custom resource definitions from the models, and the pages of the reference
	$(PY) -m supercluster.api.generate
	$(PY) -m supercluster.app.cli.reference --write docs/reference/cli.md

docs: $(STAMP) ## Build the documentation site into .cache/site; a broken link or command in a page is an error (seconds)
	$(PY) -m tools.docs.build

clean: ## Remove everything that make built
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .cache .demo artifacts
