# make demo   the library at work            make test    the whole test suite
# make check  lint, format and types         make docs    write the output that the docs show anew
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check install --quiet --constraint constraints.txt

.PHONY: demo test check docs browser clean
demo: $(VENV)/installed
	$(BIN)/ilk demo

test: $(VENV)/installed-dev browser
	$(BIN)/python -m pytest

# The page is tested in a real browser. Without one those tests are skipped, but in CI they fail.
browser:
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || \
	{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; } || \
	echo "There is no Chromium here, and it cannot be installed without root: the browser tests are skipped."

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
