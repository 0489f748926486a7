# SPDX-License-Identifier: Apache-2.0
# make help lists the targets. VENV=DIR uses an existing environment (a GPU machine's, say) and replaces nothing in it.

VENV ?= .venv
PYTHON ?= python3
PORT ?= 8000
VARIANT ?= migrated
STAGES ?= 2
MINUTES ?= 20
FUZZ_S ?= 600
WORKERS ?= 2
STOCK = vllm-omni==0.30.0

BIN = $(abspath $(VENV))/bin
LIBRARY = $(shell find src ledgers -name '*.py' -o -name '*.jsonl')
TREE_stock =
TREE_migrated = --tree build/migrated

$(if $(word 2,$(VENV)),$(error VENV must not contain spaces))
ifneq (,$(filter serve,$(MAKECMDGOALS)))
$(if $(filter stock migrated,$(VARIANT)),,$(error VARIANT is stock or migrated, not "$(VARIANT)"))
$(if $(filter 1 2,$(STAGES)),,$(error STAGES is 1 or 2, not "$(STAGES)"))
$(if $(shell printf '%s' "$(PORT)" | grep -Ex '[0-9]{1,5}'),,$(error PORT is a number, not "$(PORT)"))
endif

.DELETE_ON_ERROR:
.PHONY: dist docs example floors fuzz help setup demo serve migrated test test-unit test-rig soak lint bench mutants packages clean

help:  ## This list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

setup:  ## The environment, everything in it; the other targets call it
	@$(PYTHON) scripts/setup.py --venv "$(VENV)"

example: setup  ## A server of two processes that is not vLLM-Omni: examples/captions, PORT=8000
	@VLLM_OMNI_RIG_ENVIRONMENT=1 PYTHONPATH=rig/src/vllm_omni_rig/shims $(BIN)/python examples/captions/server.py $(PORT)

demo: migrated  ## Stock against migrated, side by side, on the rig; writes build/demo.html
	@$(BIN)/python scripts/demo.py --out build/demo.html

serve: setup $(if $(filter migrated,$(VARIANT)),migrated)  ## The real server on the rig: VARIANT=stock|migrated STAGES=1|2 PORT=8000
	@exec $(BIN)/vllm-omni-rig serve --stages $(STAGES) --port $(PORT) $(TREE_$(VARIANT))

migrated: setup  ## The migrated vLLM-Omni: wheel and diff in build/migration, unpacked in build/migrated
	@$(MAKE) --no-print-directory build/migrated/.complete

build/migrated/.complete: $(LIBRARY)
	@echo "Migrating $(STOCK), about a minute"
	@$(BIN)/omni-errors migrate $(STOCK) --out build/migration --diff build/migration.diff --wheel
	@rm -rf build/migrated
	@$(BIN)/python -m pip --disable-pip-version-check install --quiet --no-deps --no-compile --target build/migrated build/migration/*.whl
	@touch $@

test: lint test-unit test-rig  ## Everything: about 50 minutes on 2 cores

packages:  ## Programs that some tests need: Debian's chromium and prometheus, if they are missing
	@$(PYTHON) scripts/packages.py

test-unit: setup packages  ## What needs no server: under 3 minutes
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile tests --ignore=tests/rig

test-rig: migrated packages  ## What needs the real server; one process, since tests have deadlines and a server takes a CPU
	@$(BIN)/python -m pytest tests/rig

soak: migrated  ## Mixed faults under load for MINUTES=20: nothing is lost, nothing grows; build/soak.json
	@$(BIN)/python tests/rig/soak.py --minutes $(MINUTES) --json build/soak.json

lint: setup  ## Style, types, layers, changelog fragments, documents and their links
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

bench: migrated  ## Speed as ratios within one run: a table, and build/bench.json; semgrep in an environment of its own
	@$(BIN)/python -m benchmarks --json build/bench.json

docs: setup  ## What is made from the code and the fragments: errors, changed statuses, CHANGELOG.md; then build/site
	@$(BIN)/python scripts/documents.py
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

dist: setup  ## sdist, wheel and list of dependencies in dist/, checked, and installed alone
	@$(BIN)/python scripts/release.py dist

floors: setup packages  ## The tests that need no vLLM, with the lowest versions that pyproject.toml allows
	@$(BIN)/python scripts/release.py floors

build/fuzz-env/.complete: pyproject.toml
	@rm -rf build/fuzz-env
	@$(PYTHON) -m venv build/fuzz-env
	@build/fuzz-env/bin/python -m pip --disable-pip-version-check install --quiet --editable . "atheris>=3,<4"
	@touch $@

fuzz: build/fuzz-env/.complete  ## Coverage-guided fuzzing of three readers, FUZZ_S=600 seconds each
	@for target in ledger public_text wire; do build/fuzz-env/bin/python -m fuzzing $$target $(FUZZ_S) || exit 1; done

mutants: setup  ## Mutation run over the record's modules, about 40 minutes; docs/mutation.md explains the survivors
	@$(BIN)/python -m pip --disable-pip-version-check install --quiet "mutmut>=3.8,<4"
	@$(BIN)/python benchmarks/mutants.py

clean:  ## Remove what the targets made, except the environment
	@rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
