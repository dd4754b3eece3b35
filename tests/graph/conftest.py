"""A graph to write by hand, with an input."""

import pytest
from torch import fx


@pytest.fixture
def graph():
    return fx.Graph()


@pytest.fixture
def x(graph):
    return graph.placeholder("x")
