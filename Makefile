# neve: one command per job. `make` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
UV_VERSION := 0.13.7
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
INTEROP := .venv-interop
S3A := .venv-s3a
AZURITE := $(INTEROP)/azurite/node_modules/.bin/azurite-blob
AZURITE_VERSION := 3.35.0
WORKERS ?= $(shell getconf _NPROCESSORS_ONLN)
# Some fifty gates: with 30 seconds each the whole would take longer than 20 minutes on two cores.
SECONDS_EACH ?= 1
# Torture reaches its full counts in about a day on two cores; TORTURE_SECONDS=60 boxes each figure to a minute,
# and Hypothesis to 500 examples.
TORTURE_SECONDS ?= inf
export UV_LINK_MODE ?= copy
export UV_SYSTEM_CERTS ?= 1
# The compiler of the oldest protobuf that pyproject.toml allows: 5.26.1.
PROTOC_VERSION := 1.64.3
VERSION_OF := -c 'import platform; print(platform.python_version())'

.PHONY: help setup same-python check lint types layers tidy format test pythons demo bench torture interop docs package proto lock clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk 'BEGIN {FS = ":.*## "} {printf "  make %-9s %s\n", $$1, $$2}'

setup: same-python $(READY) ## make .venv with every extra and the test tools, from the hashed lock

# Only when a Python is named: without one, the environment that is there is the right one.
same-python:
ifneq ($(origin PYTHON),file)
	@if test -x $(BIN)/python; then \
	  asked=$$("$(PYTHON)" $(VERSION_OF)); found=$$($(BIN)/python $(VERSION_OF)); \
	  if test "$$asked" != "$$found"; then \
	    echo "neve set-up: $(VENV) was made with Python $$found, and PYTHON=$(PYTHON) is $$asked" >&2; \
	    echo "neve set-up: add VENV=.venv-$$asked to keep both, or remove $(VENV)" >&2; \
	    exit 1; \
	  fi; \
	fi
endif

$(READY): requirements.lock pyproject.toml hatch_build.py src/neve/_kernel.c
	@"$(PYTHON)" -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "neve needs Python 3.11 or newer; call make with PYTHON=/path/to/python3.11")'
	@echo "neve set-up: creating $(VENV) with $$("$(PYTHON)" --version)"
	@$(BIN)/python -m pip --version > /dev/null 2>&1 || "$(PYTHON)" -m venv --clear $(VENV)
	@echo "neve set-up: installing the uv installer"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "uv==$(UV_VERSION)"
	@echo "neve set-up: installing $$(grep -cE '^[a-z0-9]' requirements.lock) locked packages (the largest, PySpark, is 455 MB)"
	@echo "neve set-up: half a minute on a fast line, 2 GB on disk; the next call skips it"
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes --no-deps --requirement requirements.lock
	@echo "neve set-up: installing neve itself"
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --editable .
	@touch $(READY)
	@echo "neve set-up: done, $(BIN)/neve is ready"

check: setup lint types layers tidy ## the quick loop: lint, types, layers, tidy, unit tests
	$(BIN)/pytest -q -n $(WORKERS) tests/unit

lint: setup
	@echo "== lint: ruff, deptry"
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/deptry src

types: setup
	@echo "== types: mypy --strict"
	$(BIN)/mypy

layers: setup
	@echo "== layers: import-linter"
	$(BIN)/lint-imports

tidy: setup
	@echo "== tidy: the code's own shape and its English; \`make test\` also runs every page"
	$(BIN)/pytest -q -n $(WORKERS) tests/architecture/test_tidy.py tests/architecture/test_english.py tests/architecture/test_architecture_page.py

format: setup ## format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test: setup lint types layers ## everything CI runs: lint, types, layers, tidy, all tests and gates
	@echo "== tests: every folder, gates time-boxed to $(SECONDS_EACH) s each; those on Spark beside them, shown at the end"
	@# Spark's tests share one session in one process, which leaves a core idle: both runs together take less time.
	@mkdir -p .scratch; status=0; \
	HYPOTHESIS_PROFILE=dev $(BIN)/pytest -n 0 -m spark tests > .scratch/spark-tests.log 2>&1 & spark=$$!; \
	trap 'kill $$spark 2> /dev/null || true' EXIT; \
	NEVE_GATE_SECONDS=$(SECONDS_EACH) HYPOTHESIS_PROFILE=ci $(BIN)/pytest -n $(WORKERS) --dist=worksteal -m "not spark" tests || status=$$?; \
	echo "== tests on Spark: one session, one process"; \
	wait $$spark || status=$$?; \
	cat .scratch/spark-tests.log; \
	exit $$status

pythons: ## make test on the oldest and the newest Python of this machine, or on PYTHONS="…"
	@pythons="$(PYTHONS)"; \
	if test -z "$$pythons"; then \
	  pythons=$$(for python in $$(type -ap python3 python3.{11..14}) $(wildcard /usr/bin/python3.1[1-4]); do \
	    "$$python" -c 'import sys; v = sys.version_info; (3, 11) <= v < (3, 15) and print(*v[:3], sys.executable, sep="\t")' 2> /dev/null || true; \
	  done | sort -t $$'\t' -k 1,1n -k 2,2n -k 3,3n -u | cut -f 4 | sed -n '1p;$$p' | uniq); \
	fi; \
	for python in $$pythons; do \
	  version=$$("$$python" $(VERSION_OF)); \
	  echo "== Python $$version, in .venv-$$version"; \
	  $(MAKE) test PYTHON="$$python" VENV=".venv-$$version"; \
	done

demo: setup ## play examples/demo: the main job, end to end, on embedded defaults
	$(BIN)/neve demo

bench: setup ## benchmarks beside peers; writes dated JSON and a page into benchmarks/results
	$(BIN)/python -m benchmarks.run
	$(BIN)/python -m benchmarks.pages

torture: export NEVE_TORTURE := 1
torture: export NEVE_TORTURE_SECONDS := $(TORTURE_SECONDS)
torture: export NEVE_SCOREBOARD := $(abspath .scratch/scoreboard.jsonl)
torture: export NEVE_AZURITE := $(abspath $(wildcard $(AZURITE)))
torture: setup ## the reliability scoreboard at full counts; TORTURE_SECONDS boxes each figure
	@mkdir -p .scratch && rm -f "$$NEVE_SCOREBOARD" && date +%s > .scratch/torture-started
	@# Both runs and the page come to their end, whatever fails in between.
	@# No dump of stacks after five minutes: it reads frames that run, and may end the process.
	status=0; \
	HYPOTHESIS_PROFILE=$(if $(filter inf,$(TORTURE_SECONDS)),nightly,boxed) $(BIN)/pytest -n $(WORKERS) --dist=worksteal --timeout=14400 -o faulthandler_timeout=0 --durations=30 -m "not spark" tests/crash tests/interop tests/property tests/integration || status=$$?; \
	$(BIN)/pytest -n 0 --timeout=14400 -o faulthandler_timeout=0 tests/spark/test_exactly_once.py tests/spark/test_table_upkeep.py tests/spark/test_cluster.py tests/spark/test_sql_tpch.py || status=$$?; \
	$(BIN)/python -m tests.torture_page "$$NEVE_SCOREBOARD" $$(( $$(date +%s) - $$(cat .scratch/torture-started) )); \
	exit $$status

interop: setup $(INTEROP)/.ready .venv-spark35/.ready .venv-spark40/.ready $(S3A)/.tried $(AZURITE) ## Spark 3.5 with Iceberg's own runtime; neve on PySpark 3.5 and 4.0.0; S3A reads; Azurite holds a lake
	NEVE_INTEROP_PYTHON=$(abspath $(INTEROP)/bin/python) $(BIN)/pytest -q -n 0 tests/interop/test_spark35_iceberg.py tests/interop/test_spark35_rest.py
	NEVE_SPARK_PYTHONS="3.5.9=$(abspath .venv-spark35/bin/python) 4.0.0=$(abspath .venv-spark40/bin/python)" \
	NEVE_S3A_JARS=$(abspath $(S3A)/jars) $(BIN)/pytest -q -n 0 tests/interop/test_spark_versions.py
	@if test -x $(AZURITE); then \
	  NEVE_AZURITE=$(abspath $(AZURITE)) $(BIN)/pytest -q -n 0 tests/interop/test_other_clouds.py; \
	else echo "neve interop: there is no npm here, so Azure was not tried"; fi

$(INTEROP)/.ready: requirements-interop.lock | $(READY)
	@echo "neve set-up: creating $(INTEROP) with Spark 3.5, 430 MB on disk"
	@"$(PYTHON)" -m venv --without-pip $(INTEROP)
	@echo '*' > $(INTEROP)/.gitignore
	@$(BIN)/uv pip install --quiet --python $(INTEROP)/bin/python --require-hashes --no-deps --requirement requirements-interop.lock
	@touch $@

.venv-spark%/.ready: requirements-spark%.lock | $(READY)
	@echo "neve set-up: creating .venv-spark$* with another PySpark and neve's dependencies"
	@"$(PYTHON)" -m venv --without-pip .venv-spark$*
	@$(BIN)/uv pip install --quiet --python .venv-spark$*/bin/python --require-hashes --no-deps --requirement $<
	@touch $@

# Where Maven cannot be reached, the run goes on, and its tests are skipped.
$(S3A)/.tried: requirements.lock | $(READY)
	@echo "neve set-up: fetching hadoop-aws from Maven, 660 MB on disk"
	@mkdir -p $(S3A)/jars
	@$(BIN)/python -m tests.interop.fetch_s3a $(S3A) > $(S3A)/log 2>&1 && touch $@ || tail -n 1 $(S3A)/log

# Without npm it is left out, and the target says so.
$(AZURITE): | $(INTEROP)/.ready
	@if command -v npm > /dev/null; then \
	  echo "neve set-up: installing Azurite $(AZURITE_VERSION) with npm, 190 MB on disk"; \
	  npm install --silent --no-audit --no-fund --prefix $(INTEROP)/azurite azurite@$(AZURITE_VERSION); \
	fi

docs: setup ## build the site into site/, warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "site/index.html is ready"

package: setup ## sdist and wheel into dist/, each extra tried in an empty environment
	$(BIN)/python -m tests.integration.packaging.try_extras

proto: setup ## generate the protobuf code again, with the compiler of the oldest protobuf supported
	$(BIN)/uv run --quiet --no-project --with "grpcio-tools==$(PROTOC_VERSION)" --with "setuptools<81" \
	  python -W ignore -m grpc_tools.protoc -Isrc --python_out=src src/neve/manifest/*.proto
	$(BIN)/python -m grpc_tools.protoc -Isrc --pyi_out=src src/neve/manifest/*.proto
	$(BIN)/ruff format src/neve/manifest

lock: setup ## resolve the lock files again
	$(BIN)/uv pip compile pyproject.toml --all-extras --group quality --group test --group docs \
	  --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --quiet -o requirements.lock
	$(BIN)/uv pip compile requirements-peers.in \
	  --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --quiet -o requirements-peers.lock
	$(BIN)/uv pip compile requirements-pypaimon.in \
	  --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --quiet -o requirements-pypaimon.lock
	$(BIN)/uv pip compile requirements-interop.in \
	  --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --quiet -o requirements-interop.lock
	for version in 35 40; do $(BIN)/uv pip compile pyproject.toml --extra s3 requirements-spark$$version.in \
	  --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --quiet -o requirements-spark$$version.lock; done

clean: ## remove the environment and everything built
	rm -rf $(VENV) .venv-3.* .venv-peers .venv-pypaimon $(INTEROP) .venv-spark* $(S3A) .scratch site dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache src/neve/_kernel.abi3.so
