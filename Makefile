# Everything a fresh machine needs: `make demo` and `make test`. Each command makes its own virtual environment first.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
READY := $(VENV)/.ready
ECOSYSTEM := .venv-ecosystem
INSTALL = $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable
PYTEST = $(BIN)/python -m pytest --numprocesses 2 --dist loadfile

.PHONY: help demo lint check test cpp docs ecosystem clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "%-10s%s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(READY) ## train, quantize, convert and compare a MobileNetV1
	$(BIN)/quaver demo --out demo_out

lint: $(READY) ## ruff, its formatter and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

check: lint ## before each commit: lint, and the tests that are not marked slow, in about two minutes
	$(PYTEST) -m "not slow"

test: lint docs $(VENV)/.ready-executorch $(VENV)/.ready-litert $(VENV)/.ready-fused cpp ## what CI runs: lint, the site, and every test with every engine
	QUAVER_NEEDS="cpp executorch litert triton $$QUAVER_NEEDS" $(PYTEST)  # tests/needs.py: none of these may be skipped

# With the environment's own openvino and cmake: all it asks of the machine is make and a C++ compiler.
cpp: $(READY) ## the C++ tester, into cpp/build
	@grep -qs "CMAKE_HOME_DIRECTORY:INTERNAL=$(CURDIR)/cpp$$" cpp/build/CMakeCache.txt || rm -rf cpp/build  # copied or moved
	openvino=$$($(BIN)/python -c "from openvino.utils import get_cmake_path; print(get_cmake_path())") \
		&& $(BIN)/cmake -S cpp -B cpp/build -DOpenVINO_DIR="$$openvino"
	$(BIN)/cmake --build cpp/build --parallel 2

docs: $(VENV)/.ready-docs ## the site, into site/; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

ecosystem: $(ECOSYSTEM)/.ready ## the libraries that people train with, in an environment of their own; prints the table of docs/results.md
	$(ECOSYSTEM)/bin/python tests/ecosystem/run.py

$(ECOSYSTEM)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(ECOSYSTEM)
	$(ECOSYSTEM)/bin/python -m pip install --quiet --constraint constraints.txt --editable . \
		accelerate lightning segmentation_models_pytorch timm torchvision transformers ultralytics
	touch $@

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) ".[dev]"
	touch $@

# Extras that only some of the commands need: what executorch brings along is half a gigabyte, LiteRT is 60 MB, Triton 290 MB.
$(VENV)/.ready-%: $(READY)
	$(INSTALL) ".[$*]"
	touch $@

clean: ## all that these commands have made
	rm -rf $(VENV) $(ECOSYSTEM) demo_out site build cpp/build src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
