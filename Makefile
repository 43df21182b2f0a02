# make demo   the library at work            make test    the whole test suite
# make check  lint, format and types         make docs    write the output that the docs show anew
# make sanitize  the tests of the compiled kernels under AddressSanitizer and UBSan, then their threads under ThreadSanitizer
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check install --quiet --constraint constraints.txt

.PHONY: demo test check docs sanitize clean
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

# An editable installation builds the kernels beside their sources, so it is made anew when these change.
KERNEL := $(wildcard src/ilk/native/kernel/*)
$(VENV)/installed: $(VENV)/torch pyproject.toml setup.py $(KERNEL)
	$(PIP) --editable .
	touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(PIP) --editable '.[dev]'
	touch $@

# A second copy of the package, built with the sanitizers, in place of the installed one. Their libraries must come first in a
# process that was not built with them; Python itself leaks on purpose. Threads: the kernels only, for PyTorch's own are not
# built with the sanitizer.
define sanitized
	ILK_REQUIRE_NATIVE=1 ILK_SANITIZE=$(1) $(BIN)/python setup.py --quiet build --build-base build/$(2)
	cd build/$(2)/lib* && LD_PRELOAD="$$($(CXX) -print-file-name=$(3)) $$($(CXX) -print-file-name=libstdc++.so.6)" \
	  ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS="halt_on_error=1 $(5)" PYTHONPATH="$$PWD" \
	  $(CURDIR)/$(BIN)/python -m pytest -p no:cacheprovider --rootdir $(CURDIR) -c $(CURDIR)/pyproject.toml $(addprefix $(CURDIR)/,$(4))
endef
sanitize: $(VENV)/installed-dev
	$(call sanitized,address,address,libasan.so,$(filter-out tests/native/test_build.py,$(wildcard tests/native/test_*.py)))

clean:
	rm -rf $(VENV) build src/*.egg-info src/ilk/native/*.so
