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
PYTHON ?= $(shell for python in python3 python3.11 python3.12 python3.13 /usr/bin/python3; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$python" && break; done)

PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input

.PHONY: help venv FORCE
help: ## list the targets
	@sed -n 's/^\([a-z][a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

venv: $(VENV)/.installed $(VENV)/.wire ## virtual environment with dgrctl in .dgr/venv

# A moved checkout must not go on with an environment that points to its old place.
ifneq ($(shell cat $(VENV)/.installed 2>/dev/null),$(CURDIR))
$(VENV)/.packages $(VENV)/.installed: FORCE
endif

$(VENV)/.packages: requirements.lock
	@test -n "$(PYTHON)" || { echo "error: no Python from 3.11 on was found; name one: make PYTHON=/path/to/python3" >&2; exit 1; }
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
