# Every target first sets up .venv/ in this folder if it is missing or stale. That needs Python 3.11 or newer, as `python3` or named
# by `make PYTHON=python3.12 test`, and the package registry.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
BIN := .venv/bin
VENV := .venv/installed
PEERS := .venv-peers/installed
OPACUS := .venv-opacus/installed
PURE_LDP := .venv-pure-ldp/installed
INTERPRET := .venv-interpret/installed
SECURE_SUMS := .venv-secure-sums/installed
TUMULT := .venv-tumult/installed
DEMO_OUTPUT := out/demo
ENGINES := build/engines
UV := build/lock/bin/uv
MAVEN ?= mvn
# Which tests `make test` runs; CI (.ci/run) runs all that are `not bench and not long`: `make test-all` without the longest.
MARKS ?= not slow and not bench
# How: files of tests side by side, those with engines as one. Many tests wait for processes of their own, so one worker more than
# there are cores, four at most. `make test PARALLEL=` runs one after the other.
WORKERS := $(shell cores=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1); echo $$((cores < 3 ? cores + 1 : 4)))
PARALLEL ?= -n $(WORKERS) --dist loadfile --no-loadscope-reorder
TREE := build/types
PACKAGES := dp_pipelines transforms jobs
# Rooms that hold Python code today; linted, not type-checked.
SCRIPTS := $(wildcard tests benchmarks examples)

.PHONY: help demo dist docs test test-all test-packages test-flink test-spark test-prism test-java coverage lint format types doctest test-mutants check bench bench-collected bench-secure-sums bench-training lock newest clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 20

# Packages come from the locks alone. uv takes a tenth of the time of pip. It does not read pip's settings, so it is given their index.
# Where uv cannot reach the index, pip installs.
install = index=$${UV_DEFAULT_INDEX:-$${PIP_INDEX_URL:-$$($(1)/bin/python -m pip config get global.index-url 2>/dev/null || true)}}; \
  { [ -x $(UV) ] || $(MAKE) --no-print-directory $(UV); } \
  && env $${index:+UV_DEFAULT_INDEX="$$index"} $(UV) pip install --quiet --python $(1)/bin/python -r $(2) \
  || { echo 'make: uv could not install $(2); trying pip' >&2; $(1)/bin/python -m pip install --quiet --disable-pip-version-check -r $(2); }

# Our own package is linked, not copied.
$(VENV): pyproject.toml setup.py requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo 'make: needs Python 3.11 or newer as `$(PYTHON)`; name another one: make PYTHON=python3.12 ...' >&2; exit 1; }
	@$(BIN)/python -c 'import pip' 2>/dev/null || $(PYTHON) -m venv --clear .venv
	@$(call install,.venv,requirements.lock)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# The libraries that benchmarks compare with need older packages than ours: an environment of their own.
$(PEERS): $(wildcard requirements-peers.lock)
	@$(PYTHON) -m venv --clear .venv-peers
	@$(call install,.venv-peers,requirements-peers.lock)
	@touch $@

$(OPACUS): $(wildcard requirements-opacus.lock)
	@$(PYTHON) -m venv --clear .venv-opacus
	@$(call install,.venv-opacus,requirements-opacus.lock)
	@touch $@

$(PURE_LDP): $(wildcard requirements-pure-ldp.lock)
	@$(PYTHON) -m venv --clear .venv-pure-ldp
	@$(call install,.venv-pure-ldp,requirements-pure-ldp.lock)
	@touch $@

$(INTERPRET): $(wildcard requirements-interpret.lock)
	@$(PYTHON) -m venv --clear .venv-interpret
	@$(call install,.venv-interpret,requirements-interpret.lock)
	@touch $@

$(SECURE_SUMS): $(wildcard requirements-secure-sums.lock)
	@$(PYTHON) -m venv --clear .venv-secure-sums
	@$(call install,.venv-secure-sums,requirements-secure-sums.lock)
	@touch $@

$(TUMULT): $(wildcard requirements-tumult.lock)
	@$(PYTHON) -m venv --clear .venv-tumult
	@$(call install,.venv-tumult,requirements-tumult.lock)
	@touch $@

demo: $(VENV)  ## fetch real data, publish a private report, three scheduled weeks under one budget, then a report and a model
	@echo 'make demo: usually two minutes on two cores, and a few more the first time, when packages and purchases are fetched'
	@rm -rf $(DEMO_OUTPUT) $(DEMO_OUTPUT)-weekly
	$(BIN)/python examples/ta_feng/fetch.py
	$(BIN)/dp-pipelines run examples/ta_feng/shop.yaml --output $(DEMO_OUTPUT) --ledger none
	$(BIN)/dp-pipelines run examples/ta_feng/weekly.yaml --output $(DEMO_OUTPUT)-weekly --ledger none
	$(BIN)/python examples/ta_feng/demo.py
	@rm -rf $(DEMO_OUTPUT)-customers
	$(BIN)/dp-pipelines run examples/ta_feng/customers.yaml --output $(DEMO_OUTPUT)-customers --ledger none
	@echo 'Reports: $(DEMO_OUTPUT)*/report.html. For the command dp-pipelines in this shell: . .venv/bin/activate'

# `make test-all SEED=5` looks at the same examples as the run that printed this number.
SEED ?= $(shell od -An -N4 -tu4 /dev/urandom | tr -d ' ')
EXPLORE = --hypothesis-profile=explore --hypothesis-seed=$(SEED)

test: $(VENV)  ## every test except the slow ones, doctests included; the same examples in each run
	$(BIN)/pytest $(PARALLEL) -m '$(MARKS)'

test-all: $(VENV)  ## the slow and long tests too, with new examples in each run; then the packages, and planted faults
	$(BIN)/pytest $(PARALLEL) -m 'not bench' $(EXPLORE)
	$(MAKE) test-packages
	$(MAKE) test-mutants

test-mutants: $(VENV)  ## plant faults into a copy and check that tests find them: the table in docs/reviewers.md, then random ones
	$(BIN)/python tests/mutants/run.py
	$(BIN)/python tests/mutants/run.py --random

# With which versions: `make test-packages AGAINST=newest` or `lowest`; PYTHON=python3.12 chooses the Python.
AGAINST ?= newest lowest

test-packages: $(UV)  ## a tour of what users do, with the wheel in clean environments of the newest and the lowest versions
	$(PYTHON) tests/packages/run.py --uv $(UV) --python $(PYTHON) $(AGAINST)

# Java and Maven are all that these need beside Python: the engines come from Maven Central, once.
$(ENGINES)/%/built: tests/engines/%/pom.xml
	@command -v java >/dev/null && command -v $(MAVEN) >/dev/null || { echo 'make: needs Java 11 or newer and Maven' >&2; exit 1; }
	@mkdir -p $(@D)
	$(MAVEN) --quiet --batch-mode --file $< package -Dtarget=$(CURDIR)/$(@D)
	@touch $@

# The rules by which pages are judged in Chromium, from npm; a test reads them where they are installed.
node_modules/axe-core/axe.min.js:
	@command -v npm >/dev/null || { echo 'make: needs npm' >&2; exit 1; }
	npm install --silent --no-save --no-package-lock --no-audit --no-fund axe-core@4.14.1
	@touch $@

test-flink: $(VENV) $(ENGINES)/flink/built  ## a Flink with two task managers: conformance, the demo job, the doctor, faults
	$(BIN)/pytest tests/engines/test_flink.py tests/engines/test_joins.py tests/engines/test_faults.py tests/engines/test_waits.py
	$(BIN)/pytest tests/engines/test_outputs_and_checks.py tests/engines/test_object_stores.py -k flink

test-spark: $(VENV) $(ENGINES)/spark/built  ## a Spark with two threads: conformance and a whole run
	$(BIN)/pytest tests/engines/test_spark.py tests/engines/test_joins.py
	$(BIN)/pytest tests/engines/test_outputs_and_checks.py tests/engines/test_object_stores.py -k spark

# Go builds it from the module of the Beam that is installed, whose checksum Go checks.
$(ENGINES)/prism/prism:
	@command -v go >/dev/null || { echo 'make: needs Go' >&2; exit 1; }
	@mkdir -p $(@D)
	GOBIN=$(CURDIR)/$(@D) go install \
	  github.com/apache/beam/sdks/v2/go/cmd/prism@v$$($(BIN)/python -c 'from importlib.metadata import version; print(version("apache-beam"))')

test-prism: $(VENV) $(ENGINES)/prism/prism  ## Beam's Prism: rows in and rows out
	$(BIN)/pytest tests/transforms/rows/test_rows_on_other_runners.py

$(ENGINES)/java/built: examples/java/pom.xml $(wildcard examples/java/src/main/java/*.java)
	@command -v java >/dev/null && command -v $(MAVEN) >/dev/null || { echo 'make: needs Java 11 or newer and Maven' >&2; exit 1; }
	@mkdir -p $(@D)
	$(MAVEN) --quiet --batch-mode --file $< package -Dtarget=$(CURDIR)/$(@D)
	@touch $@

test-java: $(VENV) $(ENGINES)/java/built  ## the Java example: rows released over the expansion service
	$(BIN)/pytest tests/engines/test_java.py

coverage: $(VENV)  ## run the tests and report the lines and branches that none of them reached
	$(BIN)/pytest -m 'not slow and not bench' --cov --cov-report=term

lint: $(VENV)  ## ruff: rules and layout
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)  ## fix what ruff can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# mypy takes a package for one folder, ours is three: link them together first. Links to files that are gone are dropped.
types: $(VENV)  ## mypy, strict
	@mkdir -p $(TREE)/dp_pipelines
	@find $(TREE) -xtype l -delete
	@ln -sfn $(addprefix $(CURDIR)/,$(wildcard dp_pipelines/*) transforms jobs) $(TREE)/dp_pipelines/
	@cd $(TREE) && $(CURDIR)/$(BIN)/mypy --config-file $(CURDIR)/setup.cfg --cache-dir $(CURDIR)/.mypy_cache -p dp_pipelines \
	  | sed -E 's#^dp_pipelines/(transforms|jobs)/#\1/#'

# The wheel is built from the sdist, in a small environment with the locked tools: nothing left in build/ gets into it.
dist: $(UV)  ## a wheel, an sdist and a bill of materials in dist/, for `pip install dist/*.whl`; both are tried out
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo 'make: needs Python 3.11 or newer as `$(PYTHON)`; name another one: make PYTHON=python3.12 ...' >&2; exit 1; }
	@echo 'make dist: usually two minutes'
	@rm -rf dist
	@echo 'step 1 of 3: an environment with the tools that build'
	@$(PYTHON) -m venv --clear build/dist
	@build/dist/bin/python -m pip install --quiet --disable-pip-version-check --constraint requirements.lock build setuptools
	@echo 'step 2 of 3: the wheel and the sdist'
	build/dist/bin/python -m build --no-isolation --outdir dist . >build/dist/log 2>&1 || { cat build/dist/log >&2; exit 1; }
	@echo 'step 3 of 3: each in a clean environment'
	@index=$${UV_DEFAULT_INDEX:-$${PIP_INDEX_URL:-$$(build/dist/bin/python -m pip config get global.index-url 2>/dev/null || true)}}; \
	  env $${index:+UV_DEFAULT_INDEX="$$index"} $(PYTHON) tests/packages/check_dist.py --uv $(UV) --python $(PYTHON)
	@ls dist/*

docs: $(VENV)  ## the site: build/docs/index.html
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m sphinx -q -W --keep-going -b html docs build/docs
	@echo build/docs/index.html

doctest: $(VENV)  ## the examples in docstrings
	$(BIN)/pytest tests/test_doctests.py

check: lint types test  ## everything that CI requires

bench: $(VENV) $(PEERS) $(TUMULT)  ## compare time, memory and accuracy with other libraries; writes tables and plots into docs/
	$(BIN)/python benchmarks/noise.py
	$(BIN)/python benchmarks/accounting.py
	$(BIN)/python benchmarks/many_stages.py
	$(BIN)/python benchmarks/aggregate.py --large
	$(BIN)/python benchmarks/join.py
	$(BIN)/python benchmarks/formats.py
	$(BIN)/python benchmarks/accuracy.py
	$(BIN)/python benchmarks/quantiles.py
	$(BIN)/python benchmarks/bounds.py
	$(BIN)/python benchmarks/vectors.py
	$(BIN)/python benchmarks/means.py
	$(BIN)/python benchmarks/compare.py
	$(BIN)/python benchmarks/rollup.py
	$(BIN)/python benchmarks/selection.py
	$(BIN)/python benchmarks/partition_bound.py
	$(BIN)/python examples/first_hour/fetch.py
	$(BIN)/python examples/ta_feng/fetch.py
	$(BIN)/python benchmarks/ranges.py
	$(BIN)/python benchmarks/chosen_bounds.py
	$(BIN)/python benchmarks/block_median.py
	$(BIN)/python benchmarks/tune.py
	$(BIN)/python benchmarks/first_hour.py
	$(BIN)/python benchmarks/drop_in.py
	$(BIN)/python benchmarks/drop_in_noise.py

bench-collected: $(VENV) $(PURE_LDP)  ## measure errors and speed of reports under local differential privacy; writes a page into docs/
	$(BIN)/python benchmarks/collected.py

bench-secure-sums: $(VENV) $(SECURE_SUMS)  ## measure what sums that nobody sees in parts cost; writes a page into docs/
	$(BIN)/python benchmarks/secure_sums.py

bench-training: $(VENV) $(OPACUS) $(INTERPRET)  ## measure how good models are and how fast they train; writes tables and plots into docs/
	$(BIN)/python examples/ta_feng/fetch.py
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/federate.py
	$(BIN)/python benchmarks/correlated_noise.py
	$(BIN)/python benchmarks/pate.py
	$(BIN)/python examples/tax_units/fetch.py
	$(BIN)/python benchmarks/training_defaults.py
	$(BIN)/python examples/first_hour/fetch.py
	$(BIN)/python benchmarks/training_boosted.py
	$(BIN)/python benchmarks/training_speed.py
	$(BIN)/python benchmarks/training_steps.py
	$(BIN)/python benchmarks/training_scale.py

# A pin is kept while pyproject.toml allows it; `make lock UPGRADE=--upgrade` takes the newest of everything. uv fetches no Python.
# One set serves every Python: where a package left an older Python behind, a marker gives that Python the last version that it can
# have.
COMPILE = UV_PYTHON_DOWNLOADS=never $(UV) pip compile --quiet pyproject.toml --universal --python-version 3.11 \
  --no-header --no-annotate --no-emit-index-url --no-emit-find-links
comma := ,
empty :=
space := $(empty) $(empty)
WRITTEN = '\# Written by `make $(1)` from pyproject.toml ($(2)); do not edit. One set for every Python:' \
  '\# where a package left an older Python behind, a marker gives that Python the last version that it can have.'
# What .venv needs: all extras but dataflow, whose packages hold others back. It has a lock of its own, with the same versions
# where Google's clients allow them.
LOCKED := dev bench postgres train docs pipeline-dp yaml avro delta iceberg s3 bigquery onnx parties plot
# What examples/dataflow/Dockerfile installs.
ON_DATAFLOW := postgres dataflow

$(UV):
	@$(PYTHON) -m venv --clear build/lock
	@build/lock/bin/python -m pip install --quiet --disable-pip-version-check uv

lock: $(UV)  ## resolve the locked versions again after a change of pyproject.toml, those of Dataflow's image too
	@cp requirements.lock build/lock/pins
	@$(COMPILE) $(addprefix --extra ,$(LOCKED)) $(UPGRADE) -o build/lock/pins
	@{ printf '%s\n' $(call WRITTEN,lock,extras $(subst $(space),$(comma)$(space),$(LOCKED))); grep -v '^#' build/lock/pins; } > requirements.lock
	@cp requirements.lock build/lock/pins
	@$(COMPILE) $(addprefix --extra ,$(ON_DATAFLOW)) -o build/lock/pins
	@{ printf '%s\n' $(call WRITTEN,lock,extras $(subst $(space),$(comma)$(space),$(ON_DATAFLOW))); grep -v '^#' build/lock/pins; } > requirements-dataflow.lock

newest: $(UV)  ## write requirements-newest.lock: the newest allowed version of everything, all extras together
	@$(COMPILE) --all-extras --upgrade -o build/lock/pins
	@{ printf '%s\n' $(call WRITTEN,newest,all extras); grep -v '^#' build/lock/pins; } > requirements-newest.lock

clean:  ## remove everything these targets created, including the environments
	rm -rf .venv .venv-peers .venv-opacus .venv-interpret .venv-pure-ldp .venv-secure-sums build dist out *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
