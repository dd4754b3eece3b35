"""The layout: nodes after what they read, and never two tensors in one place."""

from hypothesis import given, settings
from hypothesis import strategies as st

from quaver.report.graph_layout import laid_out


@st.composite
def networks(draw):
    count = draw(st.integers(1, 20))
    return {
        str(index): draw(st.lists(st.integers(0, index - 1).map(str), max_size=4)) if index else [] for index in range(count)
    }


@settings(max_examples=40)
@given(networks())
def test_nodes_stand_behind_what_they_read_and_no_two_in_one_place(network):
    layout = laid_out(network)

    places = layout.places
    assert set(places) == set(network)
    assert len(set(places.values())) == len(places)
    for source, name in layout.edges:
        assert places[source].rank < places[name].rank


@settings(max_examples=40)
@given(networks())
def test_a_tensor_has_its_lane_to_itself_until_its_last_reader(network):
    layout = laid_out(network)

    for source, name in layout.edges:
        begin, end = layout.places[source], layout.places[name]
        between = [
            place for place in layout.places.values() if place.lane == begin.lane and begin.rank < place.rank < end.rank
        ]
        assert between == []


def test_a_chain_is_a_straight_line():
    layout = laid_out({"a": [], "b": ["a"], "c": ["b"]})

    assert [(place.rank, place.lane) for place in layout.places.values()] == [(0, 0), (1, 0), (2, 0)]


def test_a_residual_stream_runs_straight_on_and_its_block_stands_beside_it():
    layout = laid_out({"x": [], "one": ["x"], "two": ["one"], "add": ["two", "x"], "next": ["add"]})

    assert {name: place.lane for name, place in layout.places.items()} == {"x": 0, "one": 1, "two": 1, "add": 0, "next": 0}


def test_what_is_read_from_elsewhere_is_no_edge():
    assert laid_out({"a": ["unknown"]}).edges == []
