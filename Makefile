# One command each, and what CI runs is what you run. `make` alone tells which there are.

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help venv demo test lint unit live faults spark spark42 operator cluster bench \
  bench-spark bench-operator soak crd docs chart lock

VENV := .venv
BIN := $(VENV)/bin
LOCK := requirements/dev.txt
# Beside the newest Spark the tests run on the older one, the last that Delta's library knows.
VENV42 := .venv-spark42
LOCK42 := requirements/spark42.txt
# Two tests at a time: they wait for servers and disks more than they compute.
WORKERS ?= 2

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

venv: $(VENV)/.installed ## Make the virtual environment, from the lock

demo: venv ## Ship this machine's logs and those of a busy application (DEMO_SECONDS=20 to end)
	$(BIN)/logpipeline demo

test: lint unit live faults spark spark42 operator cluster ## Everything that this machine can run (REQUIRE_ALL=1: a skip fails)

lint: venv ## Style, types and who may import whom
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports

# The session's limit is a net for hangs, many times what a tier takes on a small machine.
unit: venv ## Tests without process and network
	$(BIN)/pytest tests/unit -q -n $(WORKERS) --session-timeout=300

live: venv ## Tests against real nats-servers
	$(BIN)/pytest tests/live -q -n $(WORKERS) --session-timeout=900

faults: venv ## Kills, cuts and full disks, a seeded share
	$(BIN)/pytest tests/faults -q -n $(WORKERS) --session-timeout=1800

# What Java needs is fetched once, before any test's time; without it the tests say what is lacking.
spark: venv ## Tables, with a real Spark and a real S3 server
	@$(BIN)/python tests/support/spark_versions.py || echo "going on without it"
	$(BIN)/pytest tests/spark -q --session-timeout=1800

# Without the tests that need no Spark.
spark42: $(VENV42)/.installed ## The same with the older Spark, and with Delta
	@$(VENV42)/bin/python tests/support/spark_versions.py || echo "going on without it"
	$(VENV42)/bin/pytest tests/spark -q --session-timeout=1800 \
	  $(foreach name,table_storage table_kills formats_iceberg rounds up,--ignore=tests/spark/test_spark_$(name).py)

# The API server is built first, outside of any test's time; where that cannot be, the tests say why.
operator: venv ## The operator on a real API server without nodes: Linux and Go, no root
	@$(BIN)/python tests/cluster/kind build api >/dev/null || echo "going on without it"
	$(BIN)/pytest tests/operator -q -n $(WORKERS) --timeout=180 --session-timeout=1800

# Kubernetes and the images are built first, outside of any test's time; where that cannot be, the
# tests say why, and are skipped or (REQUIRE_ALL=1) fail. The versions are for kind, with Docker.
cluster: venv ## All of it on a real Kubernetes with nodes: kind, or the same as plain processes
	@docker info >/dev/null 2>&1 || { $(BIN)/python tests/cluster/kind build all && \
	  $(BIN)/python tests/cluster/kind build images >/dev/null; } || echo "going on without it"
	KIND_VERSION=$${KIND_VERSION:-v0.30.0} KUBECTL_VERSION=$${KUBECTL_VERSION:-v1.34.0} \
	  $(BIN)/pytest tests/cluster -q --timeout=300 --session-timeout=2400

soak: venv ## The faults in full number, for hours
	SOAK=1 HYPOTHESIS_PROFILE=soak $(BIN)/pytest tests -q -n $(WORKERS) --timeout=14400

bench: venv ## Speed beside rsyslog, into benchmarks/latest.json
	$(BIN)/python benchmarks/run.py

bench-spark: venv ## Tables beside Spark's own way from text, into benchmarks/latest-spark.json
	$(BIN)/python benchmarks/spark_tables.py

bench-operator: venv ## What 300 pipelines cost one operator, into benchmarks/latest-operator.json
	PYTHONPATH=tests/support $(BIN)/python benchmarks/operator_scale.py

crd: venv ## Write deploy/crd.yaml from the code
	$(BIN)/python -m logpipeline.spec.crd deploy/crd.yaml

docs: venv ## Write the generated pages from the code
	$(BIN)/python -m logpipeline.spec.reference docs/crd.md
	$(BIN)/python -m logpipeline_operator.status.reference docs/operations.md
	$(BIN)/python -m logpipeline_cli.reference > docs/cli.md

chart: venv ## Write the chart's CRD and deploy/operator.yaml (needs helm: HELM=…)
	$(BIN)/python charts/render.py --helm "$${HELM:-$$(tests/cluster/kind get binaries)/helm}"

lock: ## Resolve the locks anew (needs uv)
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header \
	  --no-annotate --no-emit-index-url --no-emit-find-links --group dev pyproject.toml -o $(LOCK)
	sh requirements/lock-images
	sh requirements/lock-spark42

# The folder is made anew when the lock changes, so that nothing of the former one stays in it.
# PySpark comes as source only, and is made into a wheel by what build.txt locks.
$(VENV)/.locked: $(LOCK)
$(VENV42)/.locked: $(LOCK42)
%/.locked:
	@python=$$(PYTHON="$(PYTHON)" sh requirements/find-python) && \
	  echo "making $* from $<" && rm -rf $* && "$$python" -m venv $*
	@$*/bin/python -m pip install --quiet --disable-pip-version-check --no-input \
	  --only-binary :all: --require-hashes -r requirements/build.txt
	@$*/bin/python -m pip install --quiet --disable-pip-version-check --no-input \
	  --only-binary :all: --no-binary pyspark --no-build-isolation --require-hashes -r $<
	@touch $@

%/.installed: %/.locked pyproject.toml
	@$*/bin/python -m pip install --quiet --disable-pip-version-check --no-input \
	  --no-deps --no-build-isolation --editable .
	@touch $@
