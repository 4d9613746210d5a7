"""Which examples of a unit count: each as likely as any other, and nobody else's business."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines.training.counted_examples import counted

LABELS_OF_ONE = 31 * [2] + [19]
"""Of 32 examples of a unit 31 are in one cell."""


def rows(units: int, cells: list[int]) -> pa.Table:
    """Units with the same cells, in no order."""
    places = np.random.default_rng(1).permutation(units * len(cells))
    return pa.table({
        "who": np.repeat(np.arange(units), len(cells))[places],
        "cell": np.tile(cells, units)[places],
    })  # fmt: skip


@pytest.mark.parametrize("most", [1, 8])
def test_a_rare_example_of_a_unit_counts_as_rarely_as_it_is_rare(most: int) -> None:
    """Of 20,000 units, each with one example of 32 that is true, most / 32 count it: with a deviation below 0.0031 each.

    The hash has a fixed salt, so that this either holds or does not; 7 deviations of chance are left for it. One example of each
    cell would be 1 / 2 of them.
    """
    found = counted(rows(20_000, LABELS_OF_ONE), ["who"], most, 7)
    assert found.num_rows == 20_000 * most
    share = np.mean(found.column("cell").to_numpy() == 19)
    assert share == pytest.approx(1 / 32, abs=7 * 0.0031 / np.sqrt(most))


def test_of_few_examples_all_count_and_of_none_without_a_cell() -> None:
    table = pa.table({"who": [1, 1, 2, 3, None, 1], "cell": [4, 4, -1, 0, 5, 2]})
    assert counted(table, ["who"], 8, 7).to_pydict() == {"who": [1, 1, 3, 1], "cell": [4, 4, 0, 2]}
    assert counted(table.slice(2, 1), ["who"], 8, 7).num_rows == 0
    assert counted(table.slice(0, 0), ["who"], 8, 7).schema == table.schema


def test_an_example_without_a_label_takes_no_place() -> None:
    found = counted(rows(500, [-1] * 30 + [3]), ["who"], 1, 7)
    assert found.num_rows == 500
    assert set(found.column("cell").to_pylist()) == {3}


@settings(max_examples=50)
@given(data=st.data())
def test_what_counts_of_a_unit_is_decided_by_its_own_examples_in_any_order(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 60))
    made = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    who, cell = made.integers(0, 6, size), made.integers(-1, 4, size)
    most, salt = data.draw(st.sampled_from([1, 2, 5])), data.draw(st.integers(0, 2**64 - 1))
    order = made.permutation(size)

    def of(places: np.ndarray) -> dict[int, list[int]]:
        table = pa.table({"who": who[places], "cell": cell[places]})
        found = counted(table, ["who"], most, salt).to_pylist()
        return {unit: sorted(row["cell"] for row in found if row["who"] == unit) for unit in range(6)}

    whole = of(order)
    for unit in range(6):
        assert of(np.flatnonzero(who == unit))[unit] == whole[unit]
        assert len(whole[unit]) == min(most, np.count_nonzero((who == unit) & (cell >= 0)))
