# make demo, test, test-interpreters, bench, lint, docs, dist, clean. Needs CPython 3.10 to 3.14; everything
# else goes into .venv (and .venv-3.12, ... for other interpreters).
PYTHON ?= python3
VENV = .venv
BIN = $(VENV)/bin

.PHONY: demo test test-interpreters test-interpreter bench lint docs dist clean

demo: $(VENV)/demo
	$(BIN)/python examples/digits.py

# Tests marked `oracle` compare with PyTorch and run if it is installed in .venv.
PYTEST = $(BIN)/python -m pytest -n 2
HAS_TORCH = $(BIN)/python -c 'import sys, importlib.util; sys.exit(not importlib.util.find_spec("torch"))'

test: $(VENV)/test
	if $(HAS_TORCH); then $(PYTEST); else $(PYTEST) -m 'not oracle'; fi

# On every other release of CPython that is installed here, the part of the suite that can tell them apart: what counts
# references, knows where objects keep what, runs between two bytecodes, reads bytecode, or shares the interpreter's
# lock; not what ops and kernels compute, and not the tools around the library. What calls that lies over these is tried
# in turns, a third of the files on each release; all on one by `make test-interpreter PYTHON=python3.12 VENV=.venv-3.12`.
ON_EACH = attribute_kinds background closed_nodes data_attribute eager_native* exit exposed_memory interpreters \
	interrupt* iterables jit memory_guards native_* nested_calls onlookers pickling positions_that_move precedence \
	prepared_* reader_threads reference references threads translate* whole_calls_on_objects workers
IN_TURNS = autograd_* compiled_* data_of_views default_dtype eager_[!n]* errors explain_replay frozen_leaves \
	optim_steady replayed_* update_rules
# What takes long because much is compiled, by passes that are the same everywhere.
ON_ONE = compiled_batch_sizes compiled_extents compiled_lengths compiled_loops compiled_many_reads \
	compiled_several_sizes eager_large eager_open_large
ALL_PARTS = $(filter-out $(ON_ONE:%=tests/test_%.py),$(sort $(wildcard $(IN_TURNS:%=tests/test_%.py))))

test-interpreters:
	part=0; for python in $$(.ci/interpreters $(PYTHON)); do \
		release=$$($$python -c 'import sys; print("3.%d" % sys.version_info.minor)'); \
		$(MAKE) --no-print-directory test-interpreter PYTHON=$$python VENV=$(VENV)-$$release PART=$$part || exit 1; \
		part=$$((part + 1)); \
	done

test-interpreter: $(VENV)/interpreters
	@echo "== $$($(BIN)/python --version)"
	$(PYTEST) -m 'not oracle' $(wildcard $(ON_EACH:%=tests/test_%.py)) \
		$(if $(PART),$$(printf '%s\n' $(ALL_PARTS) | awk 'NR % 3 == $(PART) % 3'),$(ALL_PARTS))

bench: $(VENV)/demo
	$(BIN)/python -m benchmarks

lint: $(VENV)/lint
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/python .ci/types

# The documentation site, in build/docs. A warning, a link that leads nowhere or a program of the gallery that fails ends it.
docs: $(VENV)/docs
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/docs
	@echo "build/docs/index.html"

# What would be uploaded, checked, and tried in an environment that has nothing else.
dist: $(VENV)/dist
	rm -rf dist build $(VENV)-dist
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*
	$(PYTHON) -m venv $(VENV)-dist
	$(VENV)-dist/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl
	cd dist && ../$(VENV)-dist/bin/python -c "import weft; f = weft.compile(lambda x: (x * x).sum()); \
		print(weft.weft_version, weft.value_and_grad(f)([1.0, 2.0])); import weft.nn.modules.linear, weft.cuda.amp, weft.optim, weft.distributions"

clean:
	rm -rf $(VENV) $(VENV)-3.* $(VENV)-dist build dist weft.egg-info weft-demo.html weft_dump docs/generated .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A mark per set of extras: what is installed already is not asked of the network again.
$(VENV)/%: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[$*]'
	touch $@

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "weft needs Python 3.10 or newer: make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
