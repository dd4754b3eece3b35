"""What some tests need of the machine: where it is missing they are skipped with a reason, except in CI, where they fail.

QUAVER_NEEDS names what must be there: ``QUAVER_NEEDS="browser cpp executorch litert triton"``.
"""

import os
from importlib.util import find_spec

import pytest


def lacking(name, reason):
    """Skip a test, or all of a module that says so while it is imported."""
    if name in os.environ.get("QUAVER_NEEDS", "").split():
        pytest.fail(f"{reason}, and QUAVER_NEEDS says that {name} must be here", pytrace=False)
    pytest.skip(reason, allow_module_level=True)


def need_executorch():
    if find_spec("executorch") is None:
        lacking("executorch", "executorch is not installed (pip install 'quaver[executorch]')")


def need_litert():
    if find_spec("ai_edge_litert") is None:
        lacking("litert", "ai-edge-litert is not installed (pip install 'quaver[litert]')")


def need_triton():
    if find_spec("triton") is None:
        lacking("triton", "triton is not installed (pip install 'quaver[fused]')")
