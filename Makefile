# The two commands of the README are `make demo` and `make test`; each sets up its own environment.

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip --disable-pip-version-check --quiet
SOURCES = src tests scripts benchmarks

.PHONY: demo check test test-all lint generate bench bench-diagnose clean

## demo: a plan for Llama-3.1-8B on 2 nodes of 8 x 80 GB; needs Python only
demo: $(VENV)-demo/ready
	$(VENV)-demo/bin/shardguide plan examples/llama-3.1-8b --gpus 16 --nodes 2 --gpu "H100 SXM 80GB" \
	  --intra nvlink --inter infiniband --optimizer adamw --param-dtype float32 --torch 2.13 \
	  --no-input --notebook $(VENV)-demo/notebook.db

$(VENV)-demo/ready: pyproject.toml $(shell find src -name '*.py' -o -name '*.json')
	$(PYTHON) -m venv $(VENV)-demo
	$(VENV)-demo/bin/python -m pip --disable-pip-version-check --quiet install --force-reinstall --no-deps .
	$(VENV)-demo/bin/python -m pip --disable-pip-version-check --quiet install .
	touch $@

$(VENV)/check: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) install -e '.[check]'
	touch $@

$(VENV)/test: $(VENV)/check
	$(PIP) install -e '.[check,test]'
	touch $@

## lint: style, types, import contracts, generated files
lint: $(VENV)/check
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

## check: everything that needs no PyTorch, in about a minute and a half
check: lint
	$(BIN)/pytest -q -n 2 -m 'not torch and not slow'

## test: lint, types, contracts and all tests but the long ones, against PyTorch 2.13.0 on the CPU
test: $(VENV)/test lint
	$(BIN)/pytest -q -n 2 --dist worksteal

## test-all: also all releases, the largest worlds and the long fuzzing
test-all: $(VENV)/test lint
	$(BIN)/pytest -q -n 2 --dist worksteal -m ''

## generate: what is made from the data files (claims and the API index need the releases' wheels: see CONTRIBUTING.md)
generate: $(VENV)/check
	$(BIN)/python scripts/build_hardware.py
	$(BIN)/python scripts/build_patterns.py
	$(BIN)/python scripts/build_topics.py
	$(BIN)/python scripts/build_mapping.py
	$(BIN)/python scripts/build_rules.py
	$(BIN)/python scripts/build_diagnoses.py
	$(BIN)/python scripts/build_ask.py
	$(BIN)/python scripts/build_intake.py
	$(BIN)/python scripts/build_completion.py
	$(BIN)/python scripts/build_skill.py
	$(BIN)/python scripts/readme_demo.py

## bench: whole-process CPU time and memory beside bare Python
bench: $(VENV)/check
	$(BIN)/python benchmarks/run.py

## bench-diagnose: a log of 2 GB beside grep, and the Flight Recorder dumps of 1,024 and 10,240 ranks
bench-diagnose: $(VENV)/check
	$(BIN)/python benchmarks/diagnose_logs.py
	$(BIN)/python benchmarks/flight_recorder.py

clean:
	rm -rf $(VENV) $(VENV)-demo .mypy_cache .ruff_cache .pytest_cache dist
