"""The verdict on a test of arms: what it says of clear, unclear and unknown differences, whatever a manifest holds."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.report.compare_section import section
from dp_pipelines.report.words import arm_verdicts

UNCLEAR = {
    "arm": "B", "metric": "revenue", "value": 66.21, "baseline": 65.17, "difference": 1.04, "low": -2.96, "high": 5.04,
    "ratio": 1.016, "ratio_low": 0.956, "ratio_high": 1.08,
}  # fmt: skip
CLEAR = UNCLEAR | {
    "difference": 15.04,
    "low": 11.04,
    "high": 19.04,
    "ratio": 1.231,
    "ratio_low": 1.16,
    "ratio_high": 1.306,
}
UNKNOWN = {"arm": "C", "metric": "revenue"}


def told(*rows: dict[str, Any], intervals: str = "population") -> list[str]:
    return arm_verdicts.lines({"baseline": "A", "intervals": intervals, "rows": list(rows)})


def test_no_difference_says_from_which_on_this_test_finds_one() -> None:
    """Half of the interval is 4.00, so that 80 of 100 tests find 4.00 * 2.8016 / 1.95996 = 5.72, which is 8.8% of 65.17."""
    (words,) = told(UNCLEAR)
    assert words.startswith(
        "revenue of B: no difference was found; such a test finds one of about 8.8% (5.7) in 80 of 100 cases"
    )


def test_a_wide_interval_says_so_in_percent_of_the_baseline() -> None:
    (words,) = told(UNCLEAR | {"low": -60.0, "high": 62.0})
    assert "one of about 130% (87) in 80 of 100 cases" in words


def test_a_clear_difference_has_its_interval_and_its_part_of_the_baseline() -> None:
    assert told(CLEAR) == ["revenue of B is higher than that of A: by 15.0 (11.0 … 19.0), which is 23% (16% … 31%)"]
    turned = {"difference": -15.04, "low": -20.04, "high": -10.04, "ratio": 0.77, "ratio_low": 0.69, "ratio_high": 0.84}
    assert told(CLEAR | turned) == [
        "revenue of B is lower than that of A: by 15.0 (10.0 … 20.0), which is 23% (16% … 31%)"
    ]


def test_a_baseline_that_may_be_zero_or_is_below_it_has_no_percentages() -> None:
    no_ratio = {"ratio": None, "ratio_low": None, "ratio_high": None}
    assert "%" not in told(CLEAR | no_ratio)[0] + told(UNCLEAR | no_ratio)[0]
    assert "%" not in told(CLEAR | {"baseline": -65.0, "value": -50.0})[0]


def test_several_comparisons_are_counted_beside_chance() -> None:
    words = told(CLEAR, UNCLEAR, UNKNOWN)
    assert words[0] == "1 of 3 comparisons shows a difference; of 2 tests of equal arms 0.1 would by chance"
    assert words[3] == "revenue of C: too few units to tell"


def test_of_many_comparisons_the_clear_ones_have_sentences() -> None:
    words = told(*[UNCLEAR] * 40, *[CLEAR] * 12)
    assert len(words) == 2 + arm_verdicts.MOST_SENTENCES
    assert words[0].startswith("12 of 52 comparisons show a difference; of 52 tests of equal arms 2.6 would by chance")
    assert all("is higher than" in sentence for sentence in words[1:-1])
    assert words[-1] == "the table has the other 42"


def test_intervals_of_the_noise_alone_are_called_no_test() -> None:
    words = told(CLEAR, UNCLEAR, intervals="noise")
    assert words[0] == "1 of 2 comparisons shows a difference beyond the noise; none of them is a test"
    assert "among these units" in words[1]
    assert "no difference beyond the noise" in words[2]
    assert not re.search("by chance|such a test", " ".join(words))


def test_the_table_has_the_smallest_difference_of_every_unclear_row() -> None:
    shown = section({"baseline": "A", "intervals": "population", "rows": [UNCLEAR, UNKNOWN]})
    assert shown is not None
    assert [row["reading"] for row in shown["rows"]] == ["no clear difference; finds 8.8% (5.7)", "–"]
    assert shown["power"] == "80 of 100"


ODD = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.just([]) | st.just({})


@given(data=st.data())
def test_no_manifest_raises(data: st.DataObject) -> None:
    row = {key: data.draw(ODD | st.just(value)) for key, value in CLEAR.items()}
    rows = data.draw(st.lists(st.just(row) | ODD, max_size=3) | ODD)
    found = arm_verdicts.lines(data.draw(st.just({"baseline": "A", "intervals": data.draw(ODD), "rows": rows}) | ODD))
    assert all(isinstance(words, str) for words in found)
    assert not re.search(r"\bnan\b|\binf\b", " ".join(found))


@pytest.mark.parametrize("value", [1e-300, 1e299, 5e-324])
def test_numbers_of_any_size_are_written(value: float) -> None:
    row = UNCLEAR | {"baseline": value, "low": -value, "high": value, "difference": 0.0}
    assert len(told(row)) == 1
