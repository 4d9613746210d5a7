"""Simulated clients: units together, unlike by a column, the same for everybody who simulates.

In: made-up units. Out: clients. Holds: nothing is left to chance. Not covered: models of such clients (`benchmarks/federate.py`).
"""

import numpy as np
import pyarrow as pa
import pytest

from dp_pipelines import RequestError
from dp_pipelines.training.federated.simulated_clients import simulated_clients


def units(count: int = 3000) -> pa.Table:
    area = [f"area {number % 5}" for number in range(count) for _ in range(2)]
    return pa.table({"who": [f"u{number}" for number in range(count) for _ in range(2)], "area": area})


def clients_of(table: pa.Table, alpha: float, clients: int = 20) -> np.ndarray:
    return simulated_clients(table, unit="who", column="area", clients=clients, alpha=alpha)


def test_all_rows_of_a_unit_have_one_client_whoever_else_is_there() -> None:
    table = units()
    found = clients_of(table, 0.5)
    assert (found[::2] == found[1::2]).all()
    order = np.random.default_rng(1).permutation(len(table))[:1000]
    whole = np.isin(np.array(table["who"].to_pylist()), np.array(table["who"].to_pylist())[order])
    some = table.filter(pa.array(whole))
    assert clients_of(some, 0.5).tolist() == found[whole].tolist()


def test_a_small_alpha_gives_most_units_of_a_value_to_a_few_clients() -> None:
    table = units()
    area = np.array(table["area"].to_pylist())
    largest = {
        alpha: np.mean([
            np.bincount(clients_of(table, alpha)[area == value], minlength=20).max() / (area == value).sum()
            for value in set(area.tolist())
        ])
        for alpha in (0.1, 100.0)
    }  # fmt: skip
    assert largest[0.1] > 0.3
    assert largest[100.0] < 0.1


def test_shares_of_even_clients_are_even() -> None:
    """3,000 units over 20 clients: 150 each, within seven standard deviations, of hashes that never change."""
    found = np.bincount(clients_of(units(), 1e5)[::2], minlength=20)
    assert abs(found - 150).max() < 7 * np.sqrt(150)


def test_nulls_are_a_value_and_other_bytes_give_another_simulation() -> None:
    table = pa.table({"who": ["a", None, "b"], "area": [None, "n", "n"]})
    assert clients_of(table, 1.0).shape == (3,)
    one, other = (
        simulated_clients(units(), unit="who", column="area", clients=20, alpha=1.0, key=key) for key in (b"1", b"2")
    )
    assert (one != other).any()


@pytest.mark.parametrize(
    ("clients", "alpha", "field"), [(0, 1.0, "clients"), (3, 0.0, "alpha"), (3, float("nan"), "alpha")]
)
def test_numbers_that_make_no_sense_are_refused(clients: int, alpha: float, field: str) -> None:
    with pytest.raises(RequestError) as refused:
        simulated_clients(units(2), unit="who", column="area", clients=clients, alpha=alpha)
    assert refused.value.field == field
