# make demo   the library at work            make test    the whole test suite
# make check  lint, format and types         make docs    write the output that the docs show anew
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check install --quiet --constraint constraints.txt

.PHONY: demo test check docs clean
demo: $(VENV)/installed
	$(BIN)/ilk demo

test: $(VENV)/installed-dev
	$(BIN)/python -m pytest

check: $(VENV)/installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

docs: $(VENV)/installed-dev
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python docs/write.py

# PyTorch goes first and by its pin: a range that is resolved together with the rest may fetch several GB of CUDA packages.
$(VENV)/torch: constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch
	touch $@

$(VENV)/installed: $(VENV)/torch pyproject.toml
	$(PIP) --editable .
	touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(PIP) --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build src/*.egg-info
