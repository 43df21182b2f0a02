# make demo   the library at work            make test    the whole test suite
# make check  lint, format and types         make docs    write the output that the docs show anew
# make sanitize  the tests of the compiled kernels under AddressSanitizer and UBSan, then their threads under ThreadSanitizer
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check install --quiet --constraint constraints.txt

.PHONY: demo test check docs browser sanitize clean
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

# An editable installation builds the kernels beside their sources, so it is made anew when these change.
KERNEL := $(wildcard src/ilk/native/kernel/*)
$(VENV)/installed: $(VENV)/torch pyproject.toml setup.py $(KERNEL)
	$(PIP) --editable .
	touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(PIP) --editable '.[dev]'
	touch $@

# The package once more, built with the sanitizers, in place of the installed one. Their library must come first in a process
# that was not built with it, and Python itself leaks on purpose. Data races: the kernels by themselves, from a small program,
# for neither Python nor PyTorch is built with ThreadSanitizer.
SANITIZED := $(CURDIR)/build/sanitized
TESTED := $(filter-out %/test_build.py,$(wildcard $(CURDIR)/tests/native/test_*.py))
preload = $(shell $(CXX) -print-file-name=$(1))
sanitize: $(VENV)/installed-dev
	$(PIP) 'pybind11>=2.13' 'setuptools>=77'
	ILK_REQUIRE_NATIVE=1 ILK_SANITIZE=address,undefined $(BIN)/python setup.py --quiet build --build-base $(SANITIZED) --build-lib $(SANITIZED)/ilk
	cd $(SANITIZED) && LD_PRELOAD="$(call preload,libasan.so) $(call preload,libstdc++.so.6)" ASAN_OPTIONS=detect_leaks=0 \
	  UBSAN_OPTIONS=print_stacktrace=1 PYTHONPATH=$(SANITIZED)/ilk $(CURDIR)/$(BIN)/python -m pytest -p no:cacheprovider \
	  --rootdir $(CURDIR) -c $(CURDIR)/pyproject.toml $(TESTED)
	$(BIN)/python tests/native/race.py $(SANITIZED)/race

clean:
	rm -rf $(VENV) build src/*.egg-info src/ilk/native/*.so
