"""Public partitions as a list, which a plan needs before the pipeline runs.

In: an iterable, the released result of `select_partitions` with LocalBackend, or a `beam.Create` of constants. Out: a list.
Holds: no partition that the pipeline computes is taken for a public one. Not covered: whether a list that the program brings
is public, or released.
"""

from collections.abc import Iterable
from typing import Any

from dp_pipelines.errors import RequestError
from dp_pipelines.transforms.pipeline_dp.later_imports import is_pcollection
from dp_pipelines.transforms.pipeline_dp.local_result import LocalResult


def listed(partitions: Any) -> list[Any]:
    """Public partitions as a list.

    Raises:
        RequestError: they are no list, or not known yet.

    >>> listed(("north", "south"))
    ['north', 'south']
    """
    if isinstance(partitions, LocalResult):
        return partitions.keys()
    if is_pcollection(partitions):
        return _constants(partitions)
    if isinstance(partitions, (str, bytes)) or not isinstance(partitions, Iterable):
        raise RequestError(
            field="public_partitions",
            message=f"must be partition keys, but is a {type(partitions).__name__}",
            hint="pass a list",
        )
    return list(partitions)


def _constants(partitions: Any) -> list[Any]:
    """The values of the `beam.Create` that made a PCollection."""
    import apache_beam as beam

    step = partitions.producer
    while step is not None and partitions in step.outputs.values():
        if isinstance(step.transform, beam.Create):
            return list(step.transform.values)
        step = step.parent
    raise RequestError(
        field="public_partitions",
        message="is computed by this pipeline, whose plan is made before it runs. Even partitions that select_partitions "
        "has released must be stored first: a worker that is lost would draw them again",
        hint="run two pipelines: the first writes what select_partitions releases, the second reads it back as a list; "
        "their budgets add up",
    )
