"""Clients that are simulated: several privacy units each, whose mix of values differs from client to client.

In: a table of rows, the column of a unit, a declared column, how many clients, how unlike they are. Out: the client of each row.
Holds: which client a unit belongs to follows from its own rows and public bytes alone, so the clients of all others stay where
they are. Not covered: one unit of a client that is the privacy unit: its rows replace one update by another, as two clients do.
"""

# The usual law of unlike clients (Hsu, Qi, Brown 2019), turned round: each value of the column is spread over the clients by
# shares from one Dirichlet law, so that a small `alpha` gives most units of a value to a few clients. Shares are numbers of a
# Gamma law over their sum, by the inverse of its distribution at hashes of public bytes: no generator decides, so everyone who
# simulates has the same clients.

import functools
import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy import special

from dp_pipelines import checks

Floats = NDArray[np.float64]

MOST_CLIENTS = 10**6


def simulated_clients(
    table: pa.Table, *, unit: str, column: str, clients: int, alpha: float, key: bytes = b""
) -> NDArray[np.int64]:
    """The client of each row, from 0 to below `clients`: all rows of a unit have the same.

    Args:
        table: rows of whole units.
        unit: the column that identifies a unit.
        column: by whose values clients differ; of a unit with several values, the first of them in order counts.
        clients: how many.
        alpha: how alike clients are: 0.1 leaves most units of a value with a few clients, 100 spreads them evenly.
        key: public bytes; others give another simulation.

    Raises:
        RequestError: a number is out of its range.

    >>> table = pa.table({"who": ["a", "a", "b", "c"], "area": ["n", "n", "n", "s"]})
    >>> found = simulated_clients(table, unit="who", column="area", clients=3, alpha=1.0)
    >>> bool(found[0] == found[1]), bool((found < 3).all())
    (True, True)
    """
    checks.whole(clients, "clients", low=1, high=MOST_CLIENTS)
    checks.number(alpha, "alpha", above=1e-3, below=1e6)
    names = pc.fill_null(pc.cast(table.column(unit), pa.string()), "")
    values = pc.fill_null(pc.cast(table.column(column), pa.string()), "")
    first = pa.table({"unit": names, "value": values}).group_by("unit").aggregate([("value", "min")])
    of_unit = {
        name: _drawn(name, _summed(value, clients, alpha, key), key)
        for name, value in zip(first["unit"].to_pylist(), first["value_min"].to_pylist(), strict=True)
    }
    return np.array([of_unit[name] for name in names.to_pylist()], np.int64)


@functools.lru_cache(maxsize=256)
def _summed(value: str, clients: int, alpha: float, key: bytes) -> Floats:
    """The shares of a value, summed up: one Dirichlet draw."""
    shares = special.gammaincinv(alpha, _uniform(clients, [b"shares", key, value.encode()]))
    total = np.cumsum(np.maximum(shares, 1e-300))
    result: Floats = total / total[-1]
    return result


def _drawn(name: str, summed: Floats, key: bytes) -> int:
    """The client of a unit."""
    (at,) = _uniform(1, [b"unit", key, name.encode()])
    return int(min(np.searchsorted(summed, at, side="right"), len(summed) - 1))


def _uniform(count: int, parts: Sequence[Any]) -> Floats:
    """Numbers between 0 and 1 that look random: a hash of public bytes."""
    said = b"".join(len(part).to_bytes(4, "little") + part for part in parts)
    words = np.frombuffer(hashlib.shake_256(b"dp_pipelines clients " + said).digest(8 * count), "<u8")
    result: Floats = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return result
