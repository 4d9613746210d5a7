"""Private collections, and the base of the transforms that take from them.

In: a PCollection, a budget accountant, a function that gives the privacy id. Out: `PrivatePCollection`, and
`PrivatePTransform`, from which a program makes transforms of its own. Holds: what such a transform returns as released is
computed from released results alone, as the graph shows. Not covered: what it writes while it has the rows.
"""

import dataclasses
import functools
import itertools
import operator
from collections.abc import Callable
from typing import Any

import apache_beam as beam
import pipeline_dp as original
from apache_beam.transforms import ptransform

from dp_pipelines.errors import RequestError
from dp_pipelines.transforms.pipeline_dp import extract
from dp_pipelines.transforms.pipeline_dp.budget_accounting import BudgetAccountant, refuse_foreign
from dp_pipelines.transforms.pipeline_dp.dp_engine import DPEngine
from dp_pipelines.transforms.pipeline_dp.extract import Step
from dp_pipelines.transforms.pipeline_dp.release_rows import ReleaseRows


class WrongTypeError(RequestError, TypeError):
    """An argument is of another type than the one that is needed."""


@dataclasses.dataclass(frozen=True)
class PrivateRows:
    """What stands behind a private collection."""

    pcoll: beam.PCollection[Any]
    accountant: BudgetAccountant
    unit: Callable[[Any], Any]
    steps: tuple[Step, ...] = ()

    def pairs(self) -> beam.PCollection[Any]:
        """Pairs of privacy id and row, for a transform of the program's own."""
        made = beam.FlatMap(functools.partial(extract.pairs, self.unit, self.steps)).with_output_types(Any)
        return self.pcoll | free_label(self.pcoll.pipeline, "Private rows") >> made


class PrivatePCollection:
    """A collection from which only differentially private numbers can be taken, by the transforms of this module.

    Args:
        pcol: pairs of privacy id and row.
        budget_accountant: pays for all that is released from it.
    """

    def __init__(self, pcol: beam.PCollection[Any], budget_accountant: BudgetAccountant) -> None:
        refuse_foreign(budget_accountant)
        self._rows = PrivateRows(pcol, budget_accountant, operator.itemgetter(0), (("map", operator.itemgetter(1)),))

    @classmethod
    def of(cls, rows: PrivateRows) -> "PrivatePCollection":
        """A private collection of rows that have no pairs yet."""
        made = cls.__new__(cls)
        made._rows = rows
        return made

    @property
    def _budget_accountant(self) -> BudgetAccountant:
        # This and the next are what a subclass of PipelineDP's own would read.
        return self._rows.accountant

    @property
    def _pcol(self) -> beam.PCollection[Any]:
        return self._rows.pairs()

    def __or__(self, transform: Any) -> Any:
        if not isinstance(transform, PrivatePTransform):
            inner = getattr(transform, "transform", transform)  # what `"label" >> transform` wraps
            name = inner.label if isinstance(inner, beam.PTransform) else type(inner).__name__
            raise WrongTypeError(
                field="private collection",
                message=f"cannot be passed to {name}",
                hint="use the transforms of dp_pipelines.transforms.pipeline_dp.private_beam",
            )
        transform.set_additional_parameters(self._rows.accountant)
        return transform.of_rows(self._rows)


class PrivatePTransform(ptransform.PTransform):
    """Base of the transforms of a private collection, and of a program's own.

    A transform of one's own implements `expand`, which gets a PCollection of pairs of privacy id and row. It gives another
    one, or with `return_anonymized` what aggregations have released: `_create_dp_engine()` gives their engine.

    Args:
        return_anonymized: whether it gives released results, rather than pairs of privacy id and row.
        label: of the step.
    """

    label: str
    _budget_accountant: BudgetAccountant
    _backend: original.BeamBackend

    def __init__(self, return_anonymized: bool, label: str | None = None) -> None:
        super().__init__(label or type(self).__name__)
        self._return_anonymized = return_anonymized

    def __rrshift__(self, label: str) -> "PrivatePTransform":
        self.label = label
        return self

    def set_additional_parameters(self, budget_accountant: BudgetAccountant) -> None:
        """The accountant of the private collection to which it is applied."""
        self._budget_accountant, self._backend = budget_accountant, original.BeamBackend()

    def _create_dp_engine(self) -> tuple[original.BeamBackend, DPEngine]:
        return self._backend, DPEngine(self._budget_accountant, self._backend)

    def of_rows(self, rows: PrivateRows) -> Any:
        """What this transform makes of a private collection."""
        pairs = rows.pairs()
        made = pairs | free_label(pairs.pipeline, self.label) >> _Applied(self)
        if not self._return_anonymized:
            return PrivatePCollection(made, rows.accountant)
        if _reads(made, pairs):
            raise RequestError(
                field=self.label,
                message="would return rows that no aggregation has released",
                hint="return what aggregate() of _create_dp_engine() gives, or pass return_anonymized=False",
            )
        return made

    def expand(self, pcoll: Any) -> Any:
        """Only private collections have what is needed.

        Raises:
            RequestError: always.
        """
        raise RequestError(
            field=self.label, message="works on private collections", hint="put MakePrivate(...) before it"
        )


class _Applied(ptransform.PTransform):
    """A transform of the program's own, under a free label."""

    def __init__(self, inner: PrivatePTransform) -> None:
        super().__init__()
        self._inner = inner

    def expand(self, pcoll: Any) -> Any:
        return self._inner.expand(pcoll)


def _reads(pcoll: Any, rows: beam.PCollection[Any]) -> bool:
    """Whether something is computed from rows on a way that leads through no release."""
    waiting, seen = [pcoll], set()
    while waiting:
        found = waiting.pop()
        if found is rows or not isinstance(found, beam.PCollection):
            return True
        step = found.producer
        if step in seen or _is_released(step):
            continue
        seen.add(step)
        waiting += [one for one in step.inputs if isinstance(one, beam.PCollection)]
        waiting += [one.pvalue for one in step.side_inputs]
    return False


def _is_released(step: Any) -> bool:
    """Whether a step stands in a release, behind whose draw its output is."""
    while step is not None:
        if isinstance(step.transform, ReleaseRows):
            return True
        step = step.parent
    return False


def free_label(among: beam.Pipeline | BudgetAccountant, label: str) -> str:
    """A label that no other of these transforms has in a pipeline, or for an accountant."""
    taken: set[str] = among.__dict__.setdefault("_dp_pipelines_labels", set())
    numbered = (f"{label}_{number}" for number in itertools.count(1))
    found = next(name for name in itertools.chain([label], numbered) if name not in taken)
    taken.add(found)
    return found
