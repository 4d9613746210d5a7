"""The metrics of a job file: one checked model for each metric of the registry, made from the metric's own fields.

In: what stands under `metrics`. Out: checked models, their JSON schema, and back from the library's metrics. Holds: a model
has the fields, defaults and descriptions of its metric, which says itself what is wrong with them.
"""

import functools
import operator
import typing
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.spec import declared, example_parts
from dp_pipelines.jobs.spec.declared import DeclaredModel
from dp_pipelines.jobs.spec.presentation import Format, Label, Measure
from dp_pipelines.metrics import registry
from dp_pipelines.metrics.base import Metric
from dp_pipelines.metrics.lookup_bound import LookupBound


@declared.made_of(LookupBound)
class BoundByPartition(DeclaredModel[LookupBound]):
    """A bound that differs by partition: a column of the job's public lookup table."""


def _into_schema(schema: dict[str, Any], model: type["MetricModel"]) -> None:
    """Examples as for all parts; a key that the metric always refuses is none that editors should offer."""
    if not model.library.takes_stddev:
        del schema["properties"]["stddev"]
    example_parts.into_schema(schema, model)


class MetricModel(DeclaredModel[Metric]):
    """Base of the models of metrics."""

    library: ClassVar[type[Metric]]
    label: Label = None
    measure: Measure = None
    format: Format = None
    model_config = ConfigDict(json_schema_extra=_into_schema)

    @staticmethod
    def given(held: Metric, field: str) -> Any:
        """What a metric was given for a field."""
        return held.given(field)


MODELS = {
    kind: declared.model_of(MetricModel, metric, name=f"{metric.__name__}Metric", kind=kind)
    for kind, metric in registry.metrics().items()
}
"""The model of each kind of metric."""

if typing.TYPE_CHECKING:
    AnyMetric = MetricModel
else:
    AnyMetric = Annotated[functools.reduce(operator.or_, MODELS.values()), Field(discriminator="kind")]
    """Any metric, told apart by its kind."""

declared.TYPES[Metric] = AnyMetric


def described(name: str, metric: Metric) -> dict[str, Any]:
    """A library's metric as it stands in a job file.

    Args:
        name: of the metric; it stands in messages.
        metric: what it is.

    Raises:
        RequestError: job files know no such metric.

    >>> from dp_pipelines import Sum
    >>> described("revenue", Sum("price", min_value=0, max_value=20))["kind"]
    'sum'
    """
    if not registry.is_known(metric):
        message, hint = f"is a {type(metric).__name__}, which job files do not know", "run it in a pipeline of your own"
        raise RequestError(field=f"metrics.{name}", message=message, hint=hint)
    return MODELS[metric.kind].said(metric)
