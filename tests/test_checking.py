import pytest

from quaver.checking import NameIn, boolean, check, names, nearest, one_of, rate, texts, whole
from quaver.errors import ConfigError

RULES = {
    "mode": one_of("fast", "slow"),
    "count": whole(1, 5),
    "steps": whole(0),
    "loud": boolean(),
    "decay": rate(),
    "skip": texts(),
    "ops": names({"relu", "add"}),
}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mode": "fast"},
        {"count": 1, "steps": 0},
        {"count": 5, "steps": 10**9},
        {"loud": True},
        {"decay": 0},
        {"decay": 0.999},
        {"skip": "a", "ops": []},
        {"skip": ["a", "b"], "ops": ("add", "relu")},
    ],
)
def test_what_the_rules_allow_passes_in_silence(options):
    assert check("here", options, RULES) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "fats"}, r"here: mode='fats': takes one of fast, slow\. Did you mean 'fast'\?"),
        ({"mode": 3}, r"here: mode=3: takes one of fast, slow\."),
        ({"count": 0}, r"here: count=0: takes a whole number from 1 to 5\."),
        ({"count": 6}, r"here: count=6: takes a whole number from 1 to 5\."),
        ({"count": True}, r"here: count=True: takes a whole number from 1 to 5\."),
        ({"count": 2.0}, r"here: count=2\.0: takes a whole number from 1 to 5\."),
        ({"steps": -1}, r"here: steps=-1: takes a whole number of at least 0\."),
        ({"loud": 1}, r"here: loud=1: takes True or False\."),
        ({"decay": 1}, r"here: decay=1: takes a number from 0 up to, but not including, 1\."),
        ({"decay": "1%"}, r"here: decay='1%': takes a number from 0 up to, but not including, 1\."),
        (
            {"skip": [1]},
            r"here: skip=\[1\]: takes a string or a list of strings, none of them empty: that would be in every name\.",
        ),
        ({"ops": "sub"}, r"here: ops='sub': takes a list of names from add, relu, or one of them\."),
        (
            {"ops": ["rely"]},
            r"here: ops=\['rely'\]: takes a list of names from add, relu, or one of them\. Did you mean 'relu'\?",
        ),
        (
            {"cuont": 1},
            r"here: has no key 'cuont'\. Did you mean 'count'\? Known keys: count, decay, loud, mode, ops, skip, steps\.",
        ),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_a_problem_is_told_as_place_fact_and_way_out(options, message):
    with pytest.raises(ConfigError, match=f"^{message}$"):
        check("here", options, RULES)


def test_problems_are_listed_in_the_order_of_the_options():
    with pytest.raises(ConfigError, match=r"^here: loud=2.*\nhere: has no key 'x'.*\nhere: count=9[^\n]*$"):
        check("here", {"loud": 2, "x": 0, "mode": "slow", "count": 9}, RULES)


def test_nearest_guesses_only_what_is_close():
    assert nearest("colour", ["color", "size"]) == " Did you mean 'color'?"
    assert nearest("weight", ["color", "size"]) == ""


def test_a_name_that_comes_into_a_table_later_is_allowed_then():
    table = {"fast": 1}
    rules = {"mode": NameIn(table)}

    with pytest.raises(ConfigError, match=r"^here: mode='slow': takes one of fast\.$"):
        check("here", {"mode": "slow"}, rules)
    table["slow"] = 2

    assert check("here", {"mode": "slow"}, rules) is None
    with pytest.raises(ConfigError, match=r"mode='slaw': takes one of fast, slow\. Did you mean 'slow'\?$"):
        check("here", {"mode": "slaw"}, rules)
