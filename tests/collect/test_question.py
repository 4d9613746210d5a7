"""Questions: documents that devices and servers share, values on a device, answers that are remembered.

In: arguments, documents, values of every kind. Out: errors that name the field; reports. Holds: no message says a person's value.
Not covered: chances (test_laws).
"""

import json
import math
import stat
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.collect.domain import Choices, NumberBins, NumberGrid
from dp_pipelines.collect.memoised import Memoised
from dp_pipelines.collect.question import FOR_CHOICES, FOR_NUMBERS, Question
from dp_pipelines.errors import RequestError

SHOPS = Choices(("bakery", "dairy", "neither"), otherwise="neither")


@pytest.mark.parametrize("mechanism", [*FOR_CHOICES, *FOR_NUMBERS])
def test_a_document_gives_the_same_question_back(mechanism: str) -> None:
    domain = SHOPS if mechanism in FOR_CHOICES else NumberGrid("0.5", 24, otherwise=1)
    question = Question("visited", domain, epsilon="1.50", mechanism=mechanism)
    in_bins = Question("visited", NumberBins((0, "0.5", 2), otherwise=1), epsilon="1.50")
    assert Question.from_json(in_bins.to_json()) == in_bins
    assert Question.from_json(question.to_json()) == question
    value = "dairy" if mechanism in FOR_CHOICES else 7.25
    report = question.report(value)
    assert report["question"] == "visited"
    assert len(report["report"]) == len(question.randomizer.fields)
    assert json.loads(json.dumps(report)) == report


@pytest.mark.parametrize("mechanism", [*FOR_CHOICES, *FOR_NUMBERS])
def test_a_document_whose_chances_do_not_follow_from_its_epsilon_is_refused(mechanism: str) -> None:
    domain = SHOPS if mechanism in FOR_CHOICES else NumberGrid(0, 24)
    document = json.loads(Question("visited", domain, epsilon=1, mechanism=mechanism).to_json())
    for name in document["parameters"]:
        changed = json.loads(json.dumps(document))
        changed["parameters"][name] += 1
        with pytest.raises(RequestError, match=r"^parameters: is not what follows"):
            Question.from_json(json.dumps(changed))
    with pytest.raises(RequestError, match="is not what follows"):
        Question.from_json(json.dumps(document | {"bits": 40}))
    with pytest.raises(RequestError, match="is not what follows"):
        Question.from_json(json.dumps(document | {"epsilon": "1.00"}))


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"epsilon": 0}, "epsilon: must be a number above 0"),
    ({"epsilon": math.nan}, "epsilon: must be a number above 0"),
    ({"epsilon": True}, "epsilon: must be a number above 0"),
    ({"epsilon": "one"}, "epsilon: must be a number above 0"),
    ({"epsilon": 13}, "epsilon: must be a number above 0, at most 12"),
    ({"epsilon": "1e-18"}, "epsilon: is too small for 3 values"),
    ({"name": "a/b"}, "name: "),
    ({"mechanism": "unray"}, "mechanism: must be one of d_ary, unary, local_hashing, hadamard; did you mean unary"),
    ({"mechanism": "one_bit"}, "mechanism: must be one of d_ary"),
    ({"domain": ["a"]}, "domain: must be Choices"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG, ids=[message for _, message in WRONG])
def test_wrong_arguments_of_a_question_name_their_field(wrong: dict[str, Any], message: str) -> None:
    right: dict[str, Any] = {"name": "visited", "domain": SHOPS, "epsilon": 1, "mechanism": "auto"}
    given_now = right | wrong
    with pytest.raises(RequestError) as refused:
        Question(given_now["name"], given_now["domain"], epsilon=given_now["epsilon"], mechanism=given_now["mechanism"])
    assert str(refused.value).replace("'", "").startswith(message)


@pytest.mark.parametrize(
    ("values", "otherwise", "field"),
    [
        ("yes", None, "values"),
        (["yes"], None, "values"),
        (["yes", "yes"], None, "values"),
        (["yes", 1.5], None, r"values\[1\]"),
        (["yes", True], None, r"values\[1\]"),
        (["yes", "no"], "perhaps", "otherwise"),
    ],
)
def test_wrong_lists_of_values_are_refused(values: Any, otherwise: Any, field: str) -> None:
    with pytest.raises(RequestError, match=rf"^{field}: "):
        Choices(values, otherwise)


@pytest.mark.parametrize("edges", [(0, 1), (0, 2, 1), ("a", 1, 2), "012", (0, 1, math.nan)])
def test_wrong_edges_are_refused(edges: Any) -> None:
    with pytest.raises(RequestError, match=r"^edges"):
        NumberBins(edges)


@given(st.one_of(st.integers(), st.floats(), st.decimals(), st.none()))
def test_every_value_whatsoever_has_a_bin(value: Any) -> None:
    bins = NumberBins((-1, 0, "0.5", 7), otherwise=0)
    place = bins.index_of(value)
    assert 0 <= place <= 2
    if isinstance(value, int):
        assert place == (0 if value < 0 else 1 if value < 0.5 else 2)


@pytest.mark.parametrize(
    ("low", "high", "steps", "field"),
    [(1, 1, 8, "high"), (0, math.inf, 8, "high"), ("a", 1, 8, "low"), (0, 1, 3, "steps"), (0, 1, 2048, "steps")],
)
def test_wrong_grids_are_refused(low: Any, high: Any, steps: int, field: str) -> None:
    with pytest.raises(RequestError, match=rf"^{field}: "):
        NumberGrid(low, high, steps)


@given(
    st.one_of(
        st.integers(),
        st.floats(),
        st.decimals(),
        st.fractions(),
        st.text(),
        st.none(),
        st.booleans(),
        st.just(Decimal("1e999999")),
    )
)
def test_every_value_whatsoever_has_a_point_within_the_grid(value: Any) -> None:
    grid = NumberGrid(-1, 3, 8, otherwise=0)
    place = grid.index_of(value)
    assert 0 <= place <= 8
    if isinstance(value, int) and not isinstance(value, bool) and -1 <= value <= 3:
        assert Fraction(place, 2) - 1 == value


@given(st.one_of(st.text(), st.integers(), st.floats(), st.none(), st.binary(), st.lists(st.integers())))
def test_values_outside_the_list_are_those_that_stand_for_all_others(value: Any) -> None:
    assert SHOPS.values[SHOPS.index_of(value)] == (value if value in SHOPS.values else "neither")


def test_a_refusal_on_the_device_does_not_say_the_value() -> None:
    for domain, value in (
        (Choices(("yes", "no")), "secret"),
        (NumberGrid(0, 1), "secret"),
        (NumberGrid(0, 1), math.nan),
    ):
        with pytest.raises(RequestError) as refused:
            Question("asked", domain, epsilon=1).report(value)
        assert "secret" not in str(refused.value)
        assert "otherwise" in str(refused.value)


def test_the_recommended_mechanism_is_that_of_least_variance_which_a_server_can_count() -> None:
    def chosen(size: int, epsilon: float) -> str:
        return Question("asked", Choices(tuple(range(size))), epsilon=epsilon).mechanism

    assert [chosen(size, 1) for size in (2, 10, 11, 128, 129, 10_000, 10_001)] == [
        *("d_ary", "d_ary", "unary", "unary", "local_hashing", "local_hashing", "hadamard"),
    ]
    assert chosen(128, 4) == "d_ary"
    assert [Question("asked", NumberGrid(0, 1), epsilon=e).mechanism for e in (1, 2)] == ["one_bit", "piecewise"]


def test_a_remembered_answer_is_given_again_and_other_values_stop_costing(tmp_path: Path) -> None:
    question = Question("visited", Choices(tuple(range(100))), epsilon=4, mechanism="local_hashing")
    kept = Memoised(question, tmp_path / "answers.json", most_values=2)
    first, second = kept.report(1), kept.report(2)
    again = Memoised(question, tmp_path / "answers.json", most_values=2)
    assert (again.report(1), again.report(2)) == (first, second)
    assert again.report(3) == first, "beyond the declared number of values nothing fresh is told"
    assert stat.S_IMODE((tmp_path / "answers.json").stat().st_mode) == 0o600
    assert question.report(1) != first, "the twin: without a memory every answer is fresh"


def test_a_memory_of_another_question_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "answers.json"
    Memoised(Question("visited", SHOPS, epsilon=1), file).report("dairy")
    with pytest.raises(RequestError, match="answers to this question"):
        Memoised(Question("visited", SHOPS, epsilon=2), file).report("dairy")
    file.write_text("{")
    with pytest.raises(RequestError, match="answers to this question"):
        Memoised(Question("visited", SHOPS, epsilon=1), file).report("dairy")


def test_a_device_needs_the_standard_library_alone() -> None:
    code = "import sys, dp_pipelines.collect.memoised; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    plain = subprocess.run(
        [sys.executable, "-c", "import sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    before = {name.partition(".")[0] for name in plain.stdout.split()}
    others = set(run.stdout.split()) - set(sys.stdlib_module_names) - before
    assert others == {"dp_pipelines"}


def test_a_decimal_epsilon_is_the_number_that_was_written() -> None:
    assert [Question("asked", SHOPS, epsilon=e).epsilon for e in (0.1, "0.10", Decimal("0.1"))] == [Decimal("0.1")] * 3
