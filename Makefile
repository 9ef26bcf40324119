# SPDX-License-Identifier: MIT
# Every verb does its own set-up from a bare checkout: python3 with venv and make are all that must be there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
ARGS ?=
# The tests wait, too: more processes than cores help.
TEST_PROCESSES ?= 4
PYTEST := $(BIN)/python -m pytest -q --numprocesses=$(TEST_PROCESSES) --dist=loadfile --no-loadscope-reorder --durations=25

# Debian packages of the real parts that the tests run.
SERVICES := munge mariadb-server slurmdbd slurmctld slurmd slurm-client redis-server slapd mosquitto rabbitmq-server chromium systemd libnss-db

.PHONY: setup lint type test test-without-services services demo bench docs lock clean

setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $(STAMP)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

type: setup
	$(BIN)/mypy

test: setup
	rig/apart.sh $(PYTEST) $(ARGS)

# As on a machine with none of the Debian packages.
test-without-services: setup
	rig/apart.sh --without "$(SERVICES)" $(PYTEST) $(ARGS)

services:
	apt-get update -q
	DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $(SERVICES)

demo: setup
	$(BIN)/python manage.py demo $(ARGS)

bench: setup
	$(BIN)/python -m benchmarks $(ARGS)

docs: setup
	$(BIN)/python docs/generate.py
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/docs
	$(BIN)/python -m pytest -q tests/docs

lock: setup
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	  --extra demo --extra apm --group dev pyproject.toml --output-file requirements.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	  --extra embedded --extra apm --constraint requirements.lock pyproject.toml --output-file requirements-site.lock

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
