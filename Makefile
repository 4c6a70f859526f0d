# One command each, and what CI runs is what you run. `make` alone tells which there are.

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help venv demo check test test-all test-changed format lint unit tables protocol live faults operator \
  spark spark43 cluster soak bench bench-spark bench-operator generate pictures lock \
  simulate mutants

VENV := .venv
BIN := $(VENV)/bin
# Beside the default Spark, the newest that Delta's library knows, some tests run on the newest one.
VENV43 := .venv-spark43
# Tests start thousands of processes, each of which would compile the whole product anew.
unexport PYTHONDONTWRITEBYTECODE
# Where Docker is there, kind makes the cluster, in these versions.
export KIND_VERSION ?= v0.30.0
export KUBECTL_VERSION ?= v1.34.0
# The one that tests build, where none is named. As long as it is not built, what it renders is left,
# and that is said: `tests/cluster/kind build all` builds it, and so does `make test-all`.
HELM ?= $(shell $(BIN)/python tests/cluster/kind get helm)
# Two tests at a time, on two processors.
WORKERS ?= 2

help: ## Show this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

demo: $(VENV)/.run ## Ship this machine's logs and those of a busy application (DEMO_SECONDS=20 to end)
	$(BIN)/logpipeline demo

check: venv ## Style, types, unit tests, and those of tables that the change touches: before each commit
	@$(BIN)/python tests/run check

test: venv ## In minutes: check, live, and a smoke of all else (REQUIRE_ALL=1: a skip fails)
	@$(BIN)/python tests/run test

test-all: venv ## Everything that this machine can run (REUSE=1: but what passed on these very files; PART=2/3)
	@$(BIN)/python tests/run test-all

test-changed: venv ## The tests of what changed since the last commit (BASE=main: since another one)
	@$(BIN)/python tests/run changed --base $(or $(BASE),HEAD)

venv: $(VENV)/.dev ## Make the virtual environment, from the lock

format: venv ## Bring the code into its form
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

lint: venv ## Form, style, types, who may import whom, and whether what is generated is as it is to be
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python deploy/generate.py --check --helm "$(HELM)"

# The session's limit is a net for hangs, many times what a tier takes on a small machine.
unit: venv ## Tests without process and network
	$(BIN)/pytest tests/unit -q -n $(WORKERS) --session-timeout=300

tables: venv ## Tables on disks, as Delta and Iceberg keep them, without Spark
	$(BIN)/pytest tests/tables -q -n $(WORKERS) --session-timeout=600

protocol: venv ## All states of the protocol, within small bounds (SOAK=1: wider ones)
	$(BIN)/pytest tests/protocol -q -n $(WORKERS) --session-timeout=1800

# What Java needs is fetched once, before any test's time; without it the tests say what is lacking.
live: venv ## Tests against real nats-servers
	@$(BIN)/python tests/support/spark_versions.py || echo "going on without it"
	$(BIN)/pytest tests/live -q -n $(WORKERS) --session-timeout=900

# A rotator and the oldest nats-server are built first, outside of any test's time.
faults: venv ## Kills, cuts and full disks, a seeded share; the counts of each into build/faults.md
	@$(BIN)/python tests/support/go_programs.py lumberjack nats-server >/dev/null || echo "going on without it"
	PYTHONPATH=tests/support FAULTS_TABLE=build/faults.md $(BIN)/pytest -p faults.table tests/faults -q -n $(WORKERS) --session-timeout=1800

# The API server is built first, outside of any test's time; where that cannot
# be, the tests say why, and are skipped or (REQUIRE_ALL=1) fail.
operator: venv ## The operator on a real kube-apiserver, without nodes
	$(BIN)/python tests/cluster/kind build api || echo "going on without it"
	$(BIN)/pytest tests/operator -q -n $(WORKERS) --session-timeout=1800

spark: venv ## Tables, with a real Spark and a real S3 server
	@$(BIN)/python tests/support/spark_versions.py || echo "going on without it"
	$(BIN)/pytest tests/spark -q --session-timeout=1800

spark43: $(VENV43)/.spark43 ## What the newest Spark has to show
	@$(VENV43)/bin/python tests/support/spark_versions.py || echo "going on without it"
	$(VENV43)/bin/pytest tests/spark -q -m spark43 --session-timeout=1800

cluster: venv ## All of it on a real Kubernetes: kind, or the same as plain processes
	@docker info >/dev/null 2>&1 || { $(BIN)/python tests/cluster/kind build all && \
	  $(BIN)/python tests/cluster/kind build images >/dev/null; } || echo "going on without it"
	$(BIN)/pytest tests/cluster -q -n $(WORKERS) --dist=loadfile --no-loadscope-reorder \
	  --session-timeout=2400

soak: venv ## The faults in full number, for hours
	SOAK=1 HYPOTHESIS_PROFILE=soak $(BIN)/pytest tests -q -n $(WORKERS) --timeout=14400

SEEDS ?= 100
HOURS ?= 1000000
simulate: venv ## Whole pipelines in simulated worlds (SEEDS=100, HOURS=10; RESUME=file goes on; SINGLE=1: one stream; DEFECTS=1 plants some; KNOWN=1)
	PYTHONPATH=tests/support $(BIN)/python tests/support/simulated/campaign.py --seeds $(SEEDS) \
	  --hours $(HOURS) $(if $(RESUME),--resume $(RESUME)) $(if $(SINGLE),--single) $(if $(DEFECTS),--defects) \
	  $(if $(KNOWN),--known) $(if $(KEEP),--keep)

mutants: venv ## Small wrong changes of what decides, and which test notices each (MODULES=…; RESUME=file goes on)
	PYTHONPATH=tests/support $(BIN)/python tests/support/mutants/hunt.py --modules "$(MODULES)" \
	  $(if $(RESUME),--resume $(RESUME))

bench: venv ## Speed beside rsyslog, into benchmarks/latest.json
	PYTHONPATH=tests/support $(BIN)/python benchmarks/run.py

bench-spark: venv ## Tables beside Spark's own way from text, into benchmarks/latest-spark.json
	PYTHONPATH=tests/support $(BIN)/python benchmarks/spark_tables.py

bench-operator: venv ## What 300 pipelines cost one operator, into benchmarks/latest-operator.json
	PYTHONPATH=tests/support $(BIN)/python benchmarks/operator_scale.py

bench-console: venv ## What ten open pages of the console cost a pipeline
	PYTHONPATH=tests/support $(BIN)/python benchmarks/console_pages.py

generate: venv ## Write every file that is generated (with helm, or HELM=…, also the chart's manifests)
	@$(BIN)/python deploy/generate.py --helm "$(HELM)"

pictures: venv ## Draw the pictures of README and docs (those of pages need chromium)
	PICTURES=docs/images $(BIN)/pytest tests/live/test_docs_pictures.py tests/live/test_console_page.py -q

lock: ## Resolve the locks anew (needs uv)
	sh requirements/lock

# One lock for running, tables included, and one for developing, which holds it.
$(VENV)/.run: requirements/run.txt requirements/uv.txt requirements/build.txt pyproject.toml
	@sh requirements/install run $(VENV)

$(VENV)/.dev: requirements/dev.txt requirements/uv.txt requirements/build.txt pyproject.toml
	@sh requirements/install dev $(VENV)

$(VENV43)/.spark43: requirements/spark43.txt requirements/uv.txt pyproject.toml
	@sh requirements/install spark43 $(VENV43)
