# SPDX-License-Identifier: MIT
# Every verb does its own set-up from a bare checkout: python3 with venv and make are all that must be there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.installed-for-demo
ARGS ?=
# The tests wait, too: more processes than cores help.
TEST_PROCESSES ?= 7
PYTEST := $(BIN)/python -m pytest -q --numprocesses=$(TEST_PROCESSES) --dist=loadfile --no-loadscope-reorder --durations=25

# Planners, gate, parsers, state, configuration, words: what asks for no service and starts hardly any process.
QUICK := tests/agent/core tests/agent/plan tests/agent/config tests/agent/state tests/agent/bridge/test_decode.py \
  $(wildcard tests/backends/*/test_parse.py tests/backends/*/test_canonical.py tests/backends/*/test_schema.py) \
  $(filter-out %test_commands.py %test_site.py,$(wildcard tests/docs/test_*.py))

SLURM_ROOTS ?= /var/cache/waldur-site-cluster/slurm
SLURM_SUITES := trixie forky

# Debian packages of the real parts that the tests run.
SERVICES := munge mariadb-server slurmdbd slurmctld slurmd slurm-client redis-server slapd mosquitto rabbitmq-server chromium systemd libnss-db

.PHONY: setup lint type quick quick-newer test nightly coverage mutants test-without-services services services-slurm services-reference demo bench docs lock clean

setup: $(STAMP)

# What the locks name, and this checkout as a package. Not compiled: that takes twice as long as all the rest, and what is
# imported is compiled then.
define install
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --require-hashes $(addprefix -r ,$(filter %.lock,$^))
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@
endef

$(STAMP): requirements.lock pyproject.toml
	$(install)

# What a site gets, the emulated SLURM, and what makes a package.
$(DEMO_STAMP): requirements-site.lock requirements-demo.lock pyproject.toml
	$(install)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

type: setup
	$(BIN)/mypy

# In under a minute on two cores: after each edit.
quick: setup
	rig/apart.sh $(BIN)/python -m pytest -q --numprocesses=2 --dist=loadfile $(QUICK) $(ARGS)

# With the newer Pythons, those of the Debian roots of `make services-slurm`. Other clones use these, too: what is
# installed for this one is below its build, and stays between runs. Of make and pip nothing is taken over that leads to
# this machine's files.
# Not the longest, which draw many examples or read the product's source (`test_readers.py`), nor the words.
QUICK_FILES = $(filter %.py,$(wildcard $(QUICK) $(addsuffix /test_*.py,$(QUICK)) $(addsuffix /*/test_*.py,$(QUICK))))
QUICK_NEWER = $(filter-out %_properties.py %_floods.py %_kinds.py %_together.py %_bytes.py %_readers.py tests/docs/%,$(QUICK_FILES))
NEWER ?= $(SLURM_SUITES)
quick-newer:
	@for suite in $(NEWER); do \
	  in_root="rig/in-root.sh $(SLURM_ROOTS)/$$suite . /srv"; \
	  if $$in_root true; then \
	    MAKEFLAGS= PIP_FIND_LINKS= $$in_root make -C /srv quick VENV=build/venv-$$suite PYTHON=python3 QUICK="$(QUICK_NEWER)" ARGS="$(ARGS)" || exit; \
	  else \
	    echo "NOT RUN with the Python of $$suite: no root there (\`make services-slurm\`), or it may not mount here" >&2; \
	    [ "$(REQUIRE_REAL_SERVICES)" != 1 ] || exit; \
	  fi; \
	done

test: setup
	rig/apart.sh $(PYTEST) $(ARGS)

# What `test` runs a part of in full: kills at every single step, ten times the examples. An hour of two cores.
nightly: setup
	FULL_TESTS=1 rig/apart.sh $(PYTEST) --timeout=3600 $(ARGS)

# Which lines and branches of the product the tests reach; a page for each file is in build/coverage.
coverage: setup
	mkdir -p build/coverage
	rig/apart.sh $(PYTEST) --cov --cov-report=term:skip-covered --cov-report=html:build/coverage $(ARGS)

# Whether a test fails when one place of planners, gate or state is changed: 200 random places, half an hour of two cores.
mutants: setup
	rig/apart.sh $(BIN)/python -m benchmarks.mutants $(ARGS)

# As on a machine with none of the Debian packages.
test-without-services: setup
	SLURM_ROOTS=/nonexistent rig/apart.sh --without "$(SERVICES)" $(PYTEST) $(ARGS)

services:
	apt-get update -q
	DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $(SERVICES)

# Newer generations of SLURM, with their Python, MariaDB, Redis and Valkey, each in a Debian root below SLURM_ROOTS, which
# stays (600 MB, two minutes).
services-slurm:
	rig/slurm-root.sh $(SLURM_ROOTS) $(SLURM_SUITES)

# The reference with two of its plugins for reports, which the tests of `plugin_venv` run where it is there (190 MB).
REFERENCE_VENV ?= /var/cache/waldur-site-cluster/reference
services-reference:
	$(PYTHON) -m venv $(REFERENCE_VENV)
	$(REFERENCE_VENV)/bin/python -m pip install --quiet --disable-pip-version-check waldur-site-agent==1.0.7 \
	  waldur-site-agent-cscs-dwdi==1.0.7 waldur-site-agent-harbor==1.0.7

# Where all is installed already, the demo needs nothing more.
demo: $(if $(wildcard $(STAMP)),$(STAMP),$(DEMO_STAMP))
	$(BIN)/python manage.py demo $(ARGS)

bench: setup
	$(BIN)/python -m benchmarks $(ARGS)

docs: setup
	$(BIN)/python docs/generate.py
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/docs

lock: setup
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	  --extra demo --extra apm --extra oidc --group dev pyproject.toml --output-file requirements.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	  --extra embedded --extra apm --extra oidc --constraint requirements.lock pyproject.toml --output-file requirements-site.lock
	printf 'setuptools\nslurm-emulator\n' | $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	  --no-annotate --no-deps --constraint requirements.lock - --output-file requirements-demo.lock

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
