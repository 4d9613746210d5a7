"""Which examples of a held-out unit count in the evaluation: as many as may, each of its examples as likely as any other.

In: examples of whole units with their cells, how many of a unit may count. Out: those that do. Holds: what is chosen of a unit
depends on that unit's cells and the salt alone, whatever the order; an example without a cell takes no other's place. Not
covered: the bound on which the guarantee rests, which is that of the release (`stage_on_disk`) and finds nothing left to drop.
"""

# The bound of the release orders rows by a hash of what its query reads, here of the cell alone: all examples in one cell are one
# row to it. Of a unit with 31 false examples in one cell and a true one in another, the true one would count every other time.

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dp_pipelines.kernels import keys
from dp_pipelines.kernels.bounding import Positions, RowOrder, bound_rows
from dp_pipelines.kernels.columns import gather, hashing
from dp_pipelines.kernels.columns.hashing import Words
from dp_pipelines.kernels.keys import Codes, Keys
from dp_pipelines.query.train_model import CELL

_OF_COUNTED = 0x636F756E74656421
"""Makes the hash that chooses independent of those that chose a unit's examples."""


def counted(table: pa.Table, unit: Sequence[str], most: int, salt: int) -> pa.Table:
    """The examples that count, in the order of the table.

    Args:
        table: with the unit's columns and whole numbers `CELL`, of which those below 0 are none; whole units.
        unit: the columns of the privacy unit; rows without one never count.
        most: how many examples of a unit may count.
        salt: the run's own 64-bit number.

    >>> table = pa.table({"who": [7, 7, 8, 7], "cell": [3, 3, -1, 5]})
    >>> [counted(table, ["who"], most, 1).num_rows for most in (1, 2, 3)]
    [1, 2, 3]
    """
    cells = table.column(CELL).to_numpy()
    columns = [keys.plain_unit(table.column(name)) for name in unit]
    known = cells >= 0
    for column in columns:
        known &= column.is_valid().to_numpy(zero_copy_only=False)
    places = np.flatnonzero(known)
    if not len(places):
        return table.slice(0, 0)
    units = keys.dense([gather.take(column, places) for column in columns])
    ranks, nth = _numbered(units.codes, cells[places])
    of_units = units.hashes(salt ^ _OF_COUNTED)[units.codes]
    hashes = hashing.hash_onto(of_units, [pa.array(cells[places]), pa.array(nth)])

    def of_rows(positions: Positions) -> Words:
        return hashes[positions]

    alike = Keys(np.zeros(len(places), np.int64), (pa.nulls(1),))
    order = RowOrder(hashes=of_rows, ranks=lambda positions: ranks[positions])
    kept = bound_rows(units.codes, len(units), alike, order, max_rows=most).rows
    return gather.take_rows(table, places[np.sort(kept)])


def _numbered(units: Codes, cells: Codes) -> tuple[Codes, Codes]:
    """The place of each row in the order of units and cells, and its number among those that agree in both.

    >>> [numbers.tolist() for numbers in _numbered(np.array([0, 0, 1, 0]), np.array([3, 5, 3, 3]))]
    [[0, 2, 3, 1], [0, 0, 0, 1]]
    """
    order = np.lexsort((cells, units))
    begins = np.ones(len(order), np.bool_)
    begins[1:] = (units[order][1:] != units[order][:-1]) | (cells[order][1:] != cells[order][:-1])
    starts = np.flatnonzero(begins)
    sizes = np.diff(np.append(starts, len(order)))
    ranks, nth = np.empty(len(order), np.int64), np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    nth[order] = np.arange(len(order)) - np.repeat(starts, sizes)
    return ranks, nth
