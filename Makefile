# Every target does its own set-up; `make help` lists them.
SHELL := /bin/bash
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
# Compiled modules are kept, whatever the shell says: else every run of the tests compiles all of them again.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup test test-quick lint
include $(wildcard make/*.mk)

help:  ## this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  %-18s %s\n", $$1, $$2}'

setup: $(STAMP)  ## the virtual environment with everything installed
$(STAMP): pyproject.toml
	@command -v python3 >/dev/null || { echo "Python 3.11 or newer is needed: apt-get install python3 python3-venv"; exit 1; }
	@python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed, this is $$(python3 --version)"; exit 1; }
	@command -v java >/dev/null || { echo "Java 17 or newer is needed by Spark: apt-get install openjdk-17-jre-headless"; exit 1; }
	test -x $(PY) || python3 -m venv $(VENV)
	@echo "installing Spark and the rest: some minutes the first time"
	$(PY) -m pip install -q -U pip
	$(PY) -m pip install -q -e '.[all]' --group dev
	touch $@

lint: $(STAMP)  ## ruff, mypy strict, import layers
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

test-quick: $(STAMP) $(KERNELS)  ## all that needs neither Spark nor a cluster, under a minute
	$(PY) -m pytest -q -n auto --dist worksteal -m "not spark and not kafka and not cluster and not slow and not jobs and not thorough"

test: lint $(KERNELS)  ## lint and every test that needs no cluster
	$(PY) -m pytest -q -n auto --dist loadfile -m "not cluster and not slow"

