"""The public examples on which teachers vote: bins, categories and moments come from them, and the order in which they are asked.

In: a public table with the columns of the features, the task, public bytes. Out: an encoder, a whitening matrix, the rows that
are asked. Holds: all of it follows from public facts, so nothing here costs anything; the table may be counted and named. Not
covered: whether the table is public, which its owner declares, and whether its rows are like those of the units.
"""

import dataclasses
import functools
import hashlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dp_pipelines.errors import RequestError
from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns import hashing
from dp_pipelines.kernels.lattice import numbers_and_nulls
from dp_pipelines.plan_stages import training_parts
from dp_pipelines.query.models.pate_model import PateModel
from dp_pipelines.query.train_model import Category, Number
from dp_pipelines.training import stage_on_disk
from dp_pipelines.training.examples import store
from dp_pipelines.training.examples.store import Chunk
from dp_pipelines.training.features import input_types, moments, seen_columns
from dp_pipelines.training.features.encoder import Encoder

Floats = NDArray[np.float64]
Places = NDArray[np.int64]

RANKS = 100
"""Quantiles of the public values from which bins are cut."""

PORTION = 2**16
"""Rows that are encoded at a time."""

FIELD = "public"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PublicExamples:
    """What follows from the public table.

    Args:
        encoder: with bins and categories of the table.
        whitening: the matrix that multiplies encoded rows; None where the task does not whiten.
        rows: float32 (asked, width), encoded and whitened, in the order in which they are asked.
        places: (asked,) where each stands in the table.
    """

    encoder: Encoder
    whitening: Floats | None
    rows: store.Features
    places: Places

    @classmethod
    def of(cls, task: PateModel, table: pa.Table, key: bytes) -> "PublicExamples":
        """Look at the public table.

        Args:
            task: what is learnt.
            table: checked by `refuse_unfit`.
            key: public bytes, which decide the order.
        """
        table = plain(task, table)
        encoder = Encoder.of(task, edges=_edges(task, table), vocabulary=_vocabulary(task, table))
        whitening = _whitening(encoder, table, task.steps.answers) if task.whiten else None
        places = _order(table.num_rows, key)[: task.steps.settled_asked]
        rows = encoder.encode(table.take(pa.array(places)))
        if whitening is not None:
            rows = store.multiplied(rows, store.whole_numbers(whitening))
        return cls(encoder=encoder, whitening=whitening, rows=rows, places=places)


def refuse_unfit(task: PateModel, table: pa.Table | None) -> None:
    """Refuse a public table on which teachers cannot vote. Its rows are public, so their number is told.

    Raises:
        RequestError: a column is missing or of a type that does not fit its feature, or there are too few rows.
    """
    if table is None:
        message, hint = "is missing: teachers vote on public examples", "give a table with the columns of the features"
        raise RequestError(field=FIELD, message=message, hint=hint)
    for problem in input_types.of_features(table.schema, task.features).values():
        raise RequestError(field=f"{FIELD}: {problem.field}", message=problem.message, hint=problem.hint)
    asked = task.steps.settled_asked
    if table.num_rows < asked:
        message = f"has {table.num_rows:,} rows, fewer than the {asked:,} examples on which teachers vote"
        hint = "write a smaller asked: and answers: in fit, or give more public rows"
        raise RequestError(field=FIELD, message=message, hint=hint)


def plain(task: PateModel, table: pa.Table) -> pa.Table:
    """The columns of the features as models see them: one array each, of a type that Arrow can take rows of.

    Args:
        task: what is learnt.
        table: checked by `refuse_unfit`.
    """
    return pa.table({name: keys.plain(table.column(name)) for name in task.feature_columns})


def digest(table: pa.Table) -> str:
    """SHA-256 of the rows, in their order, as a run remembers them.

    Args:
        table: from `plain`. What lies under a null is no part of a row: files with the same rows may differ in it.

    >>> digest(pa.table({"x": [1, 2]})) == digest(pa.table({"x": pa.chunked_array([[1], [2]])}))
    True
    """
    digested = hashlib.sha256(str(list(zip(table.column_names, table.schema.types, strict=True))).encode())
    for column in map(keys.one_array, table.columns):
        for part in (column.is_valid(), column.drop_null()):
            sink = pa.BufferOutputStream()
            if pa.types.is_boolean(part.type):  # whole bytes, so that no bits are beyond the last one
                part = part.cast(pa.int8())
            batch = pa.record_batch({"": part})
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch)
            digested.update(sink.getvalue())
    return digested.hexdigest()


def _order(rows: int, key: bytes) -> Places:
    """In which order rows are asked: by a hash of their place, so that the first of a sorted table are like all of it."""
    salt = int.from_bytes(hashlib.sha256(b"dp_pipelines public examples\0" + key).digest()[:8], "little")
    hashes = hashing.mix(np.arange(rows, dtype=np.uint64) ^ np.uint64(salt))
    return np.argsort(hashes, kind="stable").astype(np.int64)


def _edges(task: PateModel, table: pa.Table) -> dict[str, tuple[float, ...]]:
    """The cut points of bins: of quantiles of the public values, as a release of them would give."""
    whole, found = input_types.whole_columns(table.schema), {}
    for name, number in training_parts.binned(task).items():
        values, nulls = numbers_and_nulls(keys.plain(keys.one_array(table.column(number.column))))
        known = np.sort(np.clip(values if nulls is None else values[~nulls], number.min_value, number.max_value))
        found[name] = _cuts(name, number, known, whole=number.column in whole)
    return found


def _cuts(name: str, number: Number, values: Floats, *, whole: bool) -> tuple[float, ...]:
    ranks = training_parts.ranks(number.cells, RANKS)
    if not len(values):
        return tuple(np.linspace(number.min_value, number.max_value, number.cells + 1)[1:-1].tolist())
    quantiles = values[[min(int(rank * len(values)), len(values) - 1) for rank in ranks]]
    return stage_on_disk.edges_of(pa.table({name: [quantiles.tolist()]}), name, number, whole=whole)


def _vocabulary(task: PateModel, table: pa.Table) -> dict[str, tuple[object, ...]]:
    """The categories of features that find them: the most frequent public values."""
    return {name: _frequent(category, table) for name, category in training_parts.chosen(task).items()}


def _frequent(category: Category, table: pa.Table) -> tuple[object, ...]:
    column = keys.plain(keys.one_array(table.column(category.column)))
    counted = pc.value_counts(column)
    released = pa.table({category.column: counted.field("values"), "rows": counted.field("counts").cast(pa.float64())})
    return stage_on_disk.categories_of(released, category, "rows")


@dataclasses.dataclass(frozen=True)
class _Rows:
    """All public rows, each as a unit of its own."""

    table: pa.Table
    encoder: Encoder

    @property
    def width(self) -> int:
        return self.encoder.width

    def chunks(self, units_per_chunk: int) -> Iterator[Chunk]:
        for begin in range(0, self.table.num_rows, units_per_chunk):
            features = self.encoder.encode(self.table.slice(begin, units_per_chunk))
            yield Chunk(features, np.zeros(len(features)), np.arange(len(features) + 1))


def _whitening(encoder: Encoder, table: pa.Table, answers: int) -> Floats:
    """The matrix, from the moments of all public rows.

    They are exact, and taken as if they were known to one part in so many answers: columns that fewer than three of so many
    examples have are dropped, and directions in which so few examples differ are not stretched, since a student who sees so few
    would learn chance from them.
    """
    exact = moments.clipped_moments(_Rows(table, encoder), encoder.row_norm)
    count = float(table.num_rows)
    made = functools.partial(seen_columns.seen, one_of=encoder.one_of, parts=encoder.parts)
    return made(exact, stage_on_disk.declared(count), count / answers).whitening
