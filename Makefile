# make demo, make test, make bench, make lint, make clean. Needs Python 3.10 or newer; everything else goes into .venv.
PYTHON ?= python3
VENV = .venv
BIN = $(VENV)/bin

.PHONY: demo test bench lint clean

demo: $(VENV)/demo
	$(BIN)/python examples/digits.py

# Tests marked `oracle` compare with PyTorch and run if it is installed in .venv.
PYTEST = $(BIN)/python -m pytest -n 2
HAS_TORCH = $(BIN)/python -c 'import sys, importlib.util; sys.exit(not importlib.util.find_spec("torch"))'

test: $(VENV)/test
	if $(HAS_TORCH); then $(PYTEST); else $(PYTEST) -m 'not oracle'; fi

bench: $(VENV)/demo
	$(BIN)/python -m benchmarks

lint: $(VENV)/test
	$(BIN)/ruff format --check
	$(BIN)/ruff check

clean:
	rm -rf $(VENV) build weft.egg-info weft-demo.html weft_dump .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A mark per set of extras: what is installed already is not asked of the network again.
$(VENV)/%: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[$*]'
	touch $@

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "weft needs Python 3.10 or newer: make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
