# The everyday commands. `make` alone lists them. Needs GNU make and Python 3.11 or later (PYTHON=… chooses which).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= 2

# One thread for each process: worker processes are the only parallelism, and threads change bits.
export OMP_NUM_THREADS := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install run test check format bench chaos docs clean

help:  ## show this list
	@grep -E '^[a-z]+:.*## ' $(firstword $(MAKEFILE_LIST)) | awk -F ':.*## ' '{printf "make %-9s %s\n", $$1, $$2}'

install: $(STAMP)  ## create .venv with Coterie and its tools in it, at the versions of constraints.txt

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Coterie needs Python 3.11 or later: make install PYTHON=python3.11" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@

run: install  ## run the default experiment (ARGS='--rounds 10' adds flags)
	$(BIN)/coterie run $(ARGS)

test: install  ## run the tests (WORKERS=4 uses more processes, ARGS='-k rules' chooses)
	$(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

check: install  ## lint, formatting, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict

format: install  ## put the code into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: install  ## measure speed and memory
	$(BIN)/python benchmarks/run.py $(ARGS)

chaos: install  ## run peers in trouble: killed, stopped, lied to, besieged, cut off (minutes; ARGS='--seed 1')
	$(BIN)/python benchmarks/chaos $(ARGS)

docs: install  ## build the documentation site in build/site; a link that leads nowhere is an error
	$(BIN)/python site/build.py

clean:  ## remove .venv, caches and build products; runs stay
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -path ./runs -prune -o -name __pycache__ -type d -exec rm -rf {} +
