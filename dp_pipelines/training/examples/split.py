"""Which units are held out: a keyed hash of the unit decides, for all its rows at once and for all runs of a plan.

In: unit columns, a key, a share. Out: one boolean for each row. Holds: the answer for a row depends only on its unit
and the key, not on its type's width, other rows, files or shards; the hash is independent of those that bound
contributions; no column of the rows can put a unit into both groups. Not covered: the number of held-out units (each is
held out with probability equal to the share).
"""

import hashlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dp_pipelines import checks
from dp_pipelines.errors import RequestError
from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns import gather, hashing
from dp_pipelines.kernels.columns.long_text import are_stand_ins, is_text

COLUMN = "__dp_held_out"
"""The column of examples with the answer, if it was decided before the rows were divided by unit. No column of a job
may have such a name (`checks.name`)."""

_DECIDED = pa.field(COLUMN, pa.bool_(), metadata={b"dp_pipelines": b"held out, by the hash of the unit"})
"""The field of that column in examples, as `as_decided` makes it: a column with only the name is refused. The mark proves
nothing, since a file can carry it. So it is trusted only for stand-ins for long texts, which do not allow computing the
answer."""

LONGEST = 4096
"""The largest number of bytes of a unit that are hashed directly."""

TAG = b"\0sha256:"
"""The tag before the SHA-256 of a longer unit."""

ROWS = 2**15
"""Rows at a time: with units of this length they take 128 MiB."""


def split(units: Sequence[pa.Array | pa.ChunkedArray], *, key: bytes, held_out: float) -> NDArray[np.bool_]:
    """For each row, whether its unit is held out.

    Args:
        units: the columns of the privacy unit, of equal length, at least one.
        key: for example the digest of the plan. It is not secret.
        held_out: the share of units, between 0 and 1.

    >>> split([pa.array(["ann", "bob", "ann"])], key=b"plan", held_out=0.5).tolist()
    [True, True, True]
    """
    checks.number(held_out, "held_out", above=0, below=1)
    digest = hashlib.sha256(b"dp_pipelines held out\0" + key).digest()
    salt, second = (int.from_bytes(digest[at : at + 8], "little") for at in (0, 8))
    size = len(units[0])
    found = [_hashes([column.slice(begin, ROWS) for column in units], salt) for begin in range(0, size, ROWS)]
    hashes = np.concatenate(found) if found else np.zeros(0, np.uint64)
    return hashing.mix(hashes ^ np.uint64(second)) < np.uint64(int(held_out * 2.0**64))


def groups(units: Sequence[pa.Array | pa.ChunkedArray], *, key: bytes, count: int) -> NDArray[np.int64]:
    """For each row, which of so many groups its unit is in: the same wherever the row stands, and in all runs of a plan.

    Args:
        units: the columns of the privacy unit, as examples have them: a long text may be its digest.
        key: for example the digest of the plan. It is not secret.
        count: how many groups.

    >>> groups([pa.array(["ann", "bob", "ann"])], key=b"plan", count=5).tolist()
    [2, 4, 2]
    """
    digest = hashlib.sha256(b"dp_pipelines groups of rounds\0" + key).digest()
    salt, second = (int.from_bytes(digest[at : at + 8], "little") for at in (0, 8))
    # As `store.by_unit` tells units apart, to which rows with a long text and rows with its digest are two units.
    hashes = hashing.hash_columns([keys.plain_unit(column) for column in units], salt)
    found: NDArray[np.int64] = (hashing.mix(hashes ^ np.uint64(second)) % np.uint64(count)).astype(np.int64)
    return found


def with_answers(table: pa.Table, unit: Sequence[str], *, key: bytes, held_out: float) -> pa.Table:
    """The same rows with `COLUMN`, computed from the unit's own text: from then on, rows carry a digest of a long one.

    >>> rows = pa.table({"who": ["ann", "bob"]})
    >>> with_answers(rows, ["who"], key=b"plan", held_out=0.5).column(COLUMN).to_pylist()
    [True, True]
    """
    answers = split([table.column(name) for name in unit], key=key, held_out=held_out)
    return table.append_column(COLUMN, pa.array(answers))


def carried(table: pa.Table) -> tuple[str, ...]:
    """The columns of rows on their way to examples that `with_answers` added: one or none."""
    return tuple(name for name in table.column_names if name == COLUMN)


def as_decided(examples: pa.Table) -> pa.Table:
    """Examples from `with_answers`, marked so that `answers_of` trusts their column of answers, if they have one.

    >>> answered = with_answers(pa.table({"who": ["ann"]}), ["who"], key=b"plan", held_out=0.5)
    >>> answers_of(as_decided(answered), ["who"], key=b"plan", held_out=0.5).tolist()
    [True]
    """
    for name in carried(examples):
        place = examples.schema.get_field_index(name)
        examples = examples.set_column(place, _DECIDED, examples.column(name))
    return examples


def refuse_name(columns: Sequence[str], field: str) -> None:
    """Refuse columns if one has the name of the answers.

    Raises:
        RequestError: one does.
    """
    if COLUMN in columns:
        raise RequestError(field=field, message=f"has a column {COLUMN!r}, which is a reserved name", hint="rename it")


def refuse_foreign(schema: pa.Schema) -> None:
    """Refuse examples with a column of answers that `as_decided` did not mark. Nothing here looks at rows.

    Raises:
        RequestError: they have one.
    """
    if any(field.name == COLUMN and not field.equals(_DECIDED, check_metadata=True) for field in schema) or (
        schema.names.count(COLUMN) > 1
    ):
        message = (
            "is a reserved name, and this is no column that BoundedExamples wrote, so it cannot say who is held out"
        )
        raise RequestError(field=f"column {COLUMN!r}", message=message, hint="rename it or leave it out")


def answers_of(table: pa.Table, unit: Sequence[str], *, key: bytes, held_out: float) -> NDArray[np.bool_]:
    """For each row of some examples, whether its unit is held out: the same for all its rows, whatever the column says.

    Raises:
        RequestError: see `refuse_foreign`.
    """
    refuse_foreign(table.schema)
    columns = [table.column(name) for name in unit]
    answers = split(columns, key=key, held_out=held_out)
    if not carried(table):
        return answers
    plain = [keys.plain_unit(column) for column in columns]
    told = np.logical_or.reduce([are_stand_ins(column) for column in plain])
    if told.any():
        said = pc.fill_null(keys.one_array(table.column(COLUMN)), False).to_numpy(zero_copy_only=False)
        units = keys.dense(plain).codes
        # If rows of one unit disagree, which only happens in a forged file, the unit is held out.
        answers = np.where(told, (np.bincount(units, said) > 0)[units], answers)
    return answers


def _hashes(units: Sequence[pa.Array | pa.ChunkedArray], salt: int) -> hashing.Words:
    return hashing.hash_columns([_whole(column) for column in units], salt)


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A unit's column for the division: the whole text, even where other rows carry a digest of a long one.

    So every run of a plan divides its units as the first did, even if the treatment of long text changes.
    """
    if not is_text(keys.plain_type(column.type)):
        return keys.plain_unit(column)
    return keys.with_values(column, _short)


def _short(values: pa.Array) -> pa.Array:
    """Units as bytes, or as a tagged SHA-256 if they have more than `LONGEST`."""
    lengths = pc.fill_null(pc.binary_length(values), 0).to_numpy(zero_copy_only=False)
    long = lengths > LONGEST
    if not long.any():
        return values
    found = [value.as_buffer() for value in gather.filtered(values, long)]
    return gather.replaced(
        values, long, pa.array([TAG + hashlib.sha256(value).digest() for value in found], pa.binary())
    )
