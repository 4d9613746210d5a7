"""The votes of teachers, each trained without noise on the units of one block.

In: examples of the training units, the public rows that are asked. Out: for each row, how many teachers vote for each class.
Holds: a unit is in one block, by a keyed hash of itself; a teacher follows from the rows of its block alone, bit for bit, in
whatever order; each teacher votes once for each row. So one unit moves at most one vote of a row from one class to another
(docs/proofs/pate.md). Nothing in rows makes a teacher fail. Not covered: the noise (`noisy_answers`), which votes need.
"""

import dataclasses
import hashlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns import hashing
from dp_pipelines.query.models.pate_model import PateModel
from dp_pipelines.query.train_model import MLP
from dp_pipelines.training import threads
from dp_pipelines.training.examples import store
from dp_pipelines.training.examples.store import Chunk, Examples
from dp_pipelines.training.features.encoder import Encoder
from dp_pipelines.training.federated.local_updates import LocalUpdates, constant

Floats = NDArray[np.float64]
Places = NDArray[np.int64]
Words = NDArray[np.uint64]

ALL_ROWS = 2**40
"""Rows of one gradient step: all that there are."""


def learner(task: PateModel, key: bytes) -> LocalUpdates:
    """Fits teachers and the student: gradient steps over all examples of one of them, without noise.

    Args:
        task: what is learnt.
        key: public bytes, from which a network's first weights are made.
    """
    made = LocalUpdates(
        width=task.width,
        label=task.label,
        hidden=tuple(task.model.hidden) if isinstance(task.model, MLP) else (),
        key=key,
        epochs=task.steps.steps,
        examples=ALL_ROWS,
    )
    reach = 1.0 if task.whiten else Encoder.skeleton(task).row_norm ** 2
    return dataclasses.replace(made, rate=task.steps.learning_rate or 1 / (made.curvature * reach))


@dataclasses.dataclass(frozen=True, eq=False)
class UnitBlocks:
    """Which unit is in which block.

    Args:
        of: (units,) the block of each unit of the examples.
        hashes: (units,) a number for each unit that follows from it alone.
    """

    of: Places
    hashes: Words

    @classmethod
    def of_units(cls, examples: Examples, teachers: int) -> "UnitBlocks":
        """The blocks of examples that were written with `UnitHashes`.

        Args:
            examples: of the training units.
            teachers: how many blocks.
        """
        hashes = examples.groups.view(np.uint64)
        return cls((hashes % np.uint64(teachers)).astype(np.int64), hashes)


@dataclasses.dataclass(frozen=True)
class UnitHashes:
    """For each row a number that follows from its unit alone: `group_of` of `Examples.write`.

    Args:
        unit: the columns of the privacy unit.
        key: public bytes, the same for all runs of a plan.
    """

    unit: Sequence[str]
    key: bytes

    def __call__(self, table: pa.Table) -> Places:
        """int64 (rows,), all 64 bits of it."""
        digest = hashlib.sha256(b"dp_pipelines teachers\0" + self.key).digest()
        columns = [keys.plain_unit(table.column(name)) for name in self.unit]
        return hashing.mix(hashing.hash_columns(columns, int.from_bytes(digest[:8], "little"))).view(np.int64)


def votes_of(task: PateModel, examples: Examples, blocks: UnitBlocks, rows: store.Features, key: bytes) -> Places:
    """How many teachers vote for each class. PRIVATE: only `noisy_answers` may look at it.

    Args:
        task: what is learnt.
        examples: of the training units, encoded as the public rows are.
        blocks: of these units.
        rows: the public ones.
        key: public bytes.

    Returns:
        int64 (rows, classes); each row adds up to the number of teachers.
    """
    if len(blocks.of) != examples.units:
        raise AssertionError("every unit of the examples is in one block")
    teacher, counts = learner(task, key), np.zeros((len(rows), task.classes), np.int64)
    order = np.argsort(blocks.of, kind="stable")
    ends = np.searchsorted(blocks.of[order], np.arange(task.steps.teachers + 1))

    def one(block: int) -> Places:
        units = np.sort(order[ends[block] : ends[block + 1]])
        (own,) = teacher.trained(_ordered(examples.take(units), blocks.hashes[units]))
        return voted(teacher, own, rows, task.classes)

    places = np.arange(len(rows))
    for classes in threads.in_order(one, iter(range(task.steps.teachers))):
        counts[places, classes] += 1
    return counts


def voted(teacher: LocalUpdates, own: Floats, rows: store.Features, classes: int) -> Places:
    """The class that a model gives each row.

    Args:
        teacher: the kind of model.
        own: its parameters.
        rows: as the model sees them.
        classes: how many.
    """
    from dp_pipelines.training.teachers import vote_loops  # loads Numba

    found = np.zeros(len(rows), np.int64)
    sizes = np.array(teacher.sizes, np.int64)
    with np.errstate(all="ignore"):
        vote_loops.vote(constant(rows), teacher.by_input(own), sizes, 1 if teacher.hidden else 0, classes, found)
    return found


def _ordered(chunk: Chunk, hashes: Words) -> Chunk:
    """The rows of a block as those of one client, in an order that follows from them alone."""
    rows = len(chunk.labels)
    units = np.repeat(hashes, np.diff(chunk.starts)).astype(">u8")
    parts = [units, chunk.labels.astype("<f8"), np.ascontiguousarray(chunk.features)]
    text = np.concatenate([part.reshape(rows, -1).view(np.uint8) for part in parts], axis=1) if rows else None
    starts = np.array([0, rows])
    if text is None:
        return Chunk(chunk.features, chunk.labels, starts)
    order = np.argsort(np.ascontiguousarray(text).view(f"V{text.shape[1]}").ravel(), kind="stable")
    return Chunk(chunk.features[order], chunk.labels[order], starts)
