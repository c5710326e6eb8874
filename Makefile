# make demo, make test, make test-interpreters, make bench, make lint, make clean. Needs CPython 3.10 to 3.14; everything
# else goes into .venv (and .venv-3.12, ... for other interpreters).
PYTHON ?= python3
VENV = .venv
BIN = $(VENV)/bin

.PHONY: demo test test-interpreters test-interpreter bench lint clean

demo: $(VENV)/demo
	$(BIN)/python examples/digits.py

# Tests marked `oracle` compare with PyTorch and run if it is installed in .venv.
PYTEST = $(BIN)/python -m pytest -n 2
HAS_TORCH = $(BIN)/python -c 'import sys, importlib.util; sys.exit(not importlib.util.find_spec("torch"))'

test: $(VENV)/test
	if $(HAS_TORCH); then $(PYTEST); else $(PYTEST) -m 'not oracle'; fi

# On every other release of CPython that is installed here, the part of the suite that can tell them apart: not what
# generated code computes, and not the tools around the library.
SAME_EVERYWHERE = backend_* gemm ops_* pool_* random_programs vmath visualize demo docs benchmarks imports

test-interpreters:
	for python in $$(.ci/interpreters $(PYTHON)); do \
		release=$$($$python -c 'import sys; print("3.%d" % sys.version_info.minor)'); \
		$(MAKE) --no-print-directory test-interpreter PYTHON=$$python VENV=$(VENV)-$$release || exit 1; \
	done

test-interpreter: $(VENV)/test
	@echo "== $$($(BIN)/python --version)"
	$(PYTEST) -m 'not oracle' $(SAME_EVERYWHERE:%=--ignore-glob='tests/test_%.py')

bench: $(VENV)/demo
	$(BIN)/python -m benchmarks

lint: $(VENV)/test
	$(BIN)/ruff format --check
	$(BIN)/ruff check

clean:
	rm -rf $(VENV) $(VENV)-3.* build weft.egg-info weft-demo.html weft_dump .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A mark per set of extras: what is installed already is not asked of the network again.
$(VENV)/%: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[$*]'
	touch $@

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "weft needs Python 3.10 or newer: make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
