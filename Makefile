# What a release engineer types. `make help` lists it.
#
# Everything is made below .dgr/; system packages come through apt-get alone. PYTHON names the interpreter of the virtual
# environment (any from 3.11 on).

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory

VENV := .dgr/venv
BIN := $(VENV)/bin
DGRCTL := $(BIN)/dgrctl
ifndef PYTHON
PYTHON := $(shell for python in python3 python3.11 python3.12 python3.13 /usr/bin/python3; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$python" && break; done)
endif

HAVE_PYTHON := test -n "$(PYTHON)" || \
	{ echo "error: no Python from 3.11 on was found; name one: make PYTHON=/path/to/python3" >&2; exit 1; }

PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input

MODEL := smollm2-135m-instruct-q4_1
# For the tests alone: under the Gemma terms of use.
GEMMA := gemma-3-270m-q4_k_m
RECIPE := recipes/smollm2-135m.cpu-2stage.toml

.PHONY: help certify certify-archs test test-fast bench lint format deps venv lock clean distclean FORCE

help: ## list the targets
	@sed -n 's/^\([a-z][a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

# One step after the other, whatever -j says; each is a no-op where it was done before.
certify: ## everything from nothing to the signed lane matrix, on the CPU lane
	@$(MAKE) deps
	@$(MAKE) venv
	$(DGRCTL) fetch
	$(DGRCTL) patch
	$(DGRCTL) build --lane cpu
	$(DGRCTL) model pull $(MODEL)
	$(DGRCTL) model pull $(GEMMA)
	$(DGRCTL) keys init
	$(DGRCTL) certify --lane cpu --recipe $(RECIPE)
	$(DGRCTL) matrix --write

certify-archs: ## every architecture of the pin at every cut; rewrites the roster that the worker is compiled with
	@$(MAKE) venv
	$(DGRCTL) arch certify

test: lint test-fast ## all tests, C++ and Python; needs what `make certify` made
	$(BIN)/python -m pytest tests/integration tests/faults

test-fast: venv ## the tests that need no compiler and no model, in under a minute
	$(BIN)/python -m pytest --numprocesses 2 tests/unit

bench: venv ## the split against the whole model, and the cost of a hop
	$(DGRCTL) bench

lint: venv ## ruff, mypy, the import contract, clang-format, the patch stack
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --cache-dir .dgr/importlinter
	$(DGRCTL) patch lint
	@git ls-files -z -- 'worker/*.h' 'worker/*.cpp' | xargs -0 --no-run-if-empty $(BIN)/clang-format --dry-run -Werror

format: venv ## rewrite the sources as `make lint` wants them
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	@git ls-files -z -- 'worker/*.h' 'worker/*.cpp' | xargs -0 --no-run-if-empty $(BIN)/clang-format -i

deps: ## system packages that are missing: installed as root or with sudo, else the command is printed
	@$(HAVE_PYTHON)
	@scripts/system-packages.sh "$(PYTHON)"

venv: $(VENV)/.installed $(VENV)/.wire ## virtual environment with dgrctl in .dgr/venv

# A moved checkout must not go on with an environment that points to its old place, nor any with an interpreter that is gone.
ifneq ($(shell $(BIN)/python -c '' 2>/dev/null && cat $(VENV)/.installed 2>/dev/null),$(CURDIR))
$(VENV)/.packages $(VENV)/.installed: FORCE
endif

$(VENV)/.packages: requirements.lock
	@$(HAVE_PYTHON)
	@echo "Python environment in $(VENV), from $(PYTHON) …" >&2
	@"$(PYTHON)" -m venv --clear $(VENV)
	@$(PIP) install --quiet --require-hashes -r requirements.lock
	@touch $@

$(VENV)/.installed: $(VENV)/.packages pyproject.toml
	@$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $(VENV)/.wire
	@printf '%s\n' "$(CURDIR)" > $@

$(VENV)/.wire: $(wildcard proto/dgr/v1/*.proto) hatch_build.py | $(VENV)/.installed
	@$(BIN)/python hatch_build.py
	@touch $@

# uv resolves for all supported versions of Python at once; it lives in an environment of its own and is not needed otherwise.
lock: ## resolve the Python packages anew into requirements.lock
	@$(HAVE_PYTHON)
	@"$(PYTHON)" -m venv .dgr/uv && .dgr/uv/bin/python -m pip install --quiet uv==0.13.9
	.dgr/uv/bin/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes --upgrade \
		--quiet --custom-compile-command "make lock" --output-file requirements.lock

clean: ## remove builds, logs and caches; say what is kept
	rm -rf .dgr/build .dgr/ccache .dgr/runs .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@echo "kept: downloads, upstream, workspace, models, keys and the Python environment in .dgr/, evidence in certs/" >&2
	@echo "make distclean removes .dgr/ as a whole, signing keys and unexported work in the workspace included" >&2

distclean: clean ## remove .dgr/ as a whole: downloads, models, keys, workspace
	rm -rf .dgr dgrctl/wire/dgr
	@echo "kept: evidence in certs/" >&2
