# Everything a fresh machine needs: `make demo` and `make test`. Both make their own virtual environment first.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test check clean

demo: $(READY)
	$(BIN)/quaver demo --out demo_out

test: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2 --dist loadscope

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $(READY)

clean:
	rm -rf $(VENV) demo_out build src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
