#!/bin/sh
# Installs quaver-runtime with an engine into a fresh virtual environment and runs an artefact there:
#   packaging/runtime/check.sh openvino OUT/int8
# Tests do the same with torch hidden (tests/runtime/test_without_torch.py); this shows that the installation needs none.
set -e
here=$(dirname "$0")
venv=$(mktemp -d)
trap 'rm -rf "$venv" "$here/build" "$here/../../src/quaver_runtime.egg-info"' EXIT
"${PYTHON:-python3}" -m venv "$venv"
"$venv/bin/pip" install --quiet "$here[$1]"
"$venv/bin/pip" list
"$venv/bin/python" -P - "$2" <<'END'
import sys
import time

begin = time.perf_counter()
import quaver.runtime
from quaver.runtime.example_batches import fixed_batch, random_batch

imported = time.perf_counter()
run = quaver.runtime.load(sys.argv[1])
loaded = time.perf_counter()
run(*random_batch(run.inputs, fixed_batch(run.inputs) or 1))
print(f"{sys.argv[1]} runs on {run.engine}; imported in {imported - begin:.2f} s, loaded in {loaded - imported:.2f} s")
assert "torch" not in sys.modules
END
