# Everything a fresh machine needs: `make demo` and `make test`. Both make their own virtual environment first.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test cpp check clean

demo: $(READY)
	$(BIN)/quaver demo --out demo_out

test: $(READY) cpp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile

# With the environment's own openvino and cmake: all it asks of the machine is make and a C++ compiler.
cpp: $(READY)
	@grep -qs "CMAKE_HOME_DIRECTORY:INTERNAL=$(CURDIR)/cpp$$" cpp/build/CMakeCache.txt || rm -rf cpp/build  # copied or moved
	openvino=$$($(BIN)/python -c "from openvino.utils import get_cmake_path; print(get_cmake_path())") \
		&& $(BIN)/cmake -S cpp -B cpp/build -DOpenVINO_DIR="$$openvino"
	$(BIN)/cmake --build cpp/build --parallel 2

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $(READY)

clean:
	rm -rf $(VENV) demo_out build src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
