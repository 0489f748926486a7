# SPDX-License-Identifier: Apache-2.0
# make help lists the targets. VENV=DIR uses an existing environment (a GPU machine's, say) and replaces nothing in it.

VENV ?= .venv
PYTHON ?= python3
PORT ?= 8000
VARIANT ?= migrated
STAGES ?= 2
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
.PHONY: docs help setup demo serve migrated test test-unit test-rig lint bench mutants packages clean

help:  ## This list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

setup:  ## The environment, everything in it; the other targets call it
	@$(PYTHON) scripts/setup.py --venv "$(VENV)"

demo: migrated  ## Stock against migrated, side by side, on the rig; writes build/demo.html
	@$(BIN)/python scripts/demo.py --out build/demo.html

serve: setup $(if $(filter migrated,$(VARIANT)),migrated)  ## The real server on the rig: VARIANT=stock|migrated STAGES=1|2 PORT=8000
	@exec $(BIN)/vllm-omni-rig serve --stages $(STAGES) --port $(PORT) $(TREE_$(VARIANT))

migrated: setup  ## The migrated vLLM-Omni: wheel and diff in build/migration, unpacked in build/migrated
	@$(MAKE) --no-print-directory build/migrated/.complete

build/migrated/.complete: $(LIBRARY)
	@$(BIN)/omni-errors migrate $(STOCK) --out build/migration --diff build/migration.diff --wheel
	@rm -rf build/migrated
	@$(BIN)/python -m pip --disable-pip-version-check install --quiet --no-deps --no-compile --target build/migrated build/migration/*.whl
	@touch $@

test: lint test-unit test-rig  ## Everything: about 25 minutes on 2 cores

packages:  ## Programs that some tests need: Debian's chromium and prometheus, if they are missing
	@$(PYTHON) scripts/packages.py

test-unit: setup packages  ## What needs no server: under 3 minutes
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile tests --ignore=tests/rig

test-rig: migrated packages  ## What needs the real server; WORKERS=2 is how many processes run the tests
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup tests/rig

lint: setup  ## Style, types, layers, changelog fragments
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/towncrier build --draft --version 0.1.0 > /dev/null

bench: setup  ## Speed as ratios within one run: a table, and build/bench.json
	@$(BIN)/python -m benchmarks --json build/bench.json

docs: setup  ## The documents that are made from the code
	@$(BIN)/python -m vllm_omni_errors.explain > docs/errors.md

mutants: setup  ## Mutation run over the record's modules, about 40 minutes; docs/mutation.md explains the survivors
	@$(BIN)/python -m pip --disable-pip-version-check install --quiet "mutmut>=3.8,<4"
	@$(BIN)/python benchmarks/mutants.py

clean:  ## Remove what the targets made, except the environment
	@rm -rf build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
