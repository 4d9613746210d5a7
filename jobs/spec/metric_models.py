"""The metrics of a job file: one checked model for each metric of the registry, made from the metric's own fields.

In: what stands under `metrics`. Out: checked models, their JSON schema, and back from the library's metrics. Holds: a model
has the fields, defaults and descriptions of its metric, which says itself what is wrong with them.
"""

import dataclasses
import functools
import inspect
import operator
import typing
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, TypeAdapter, WithJsonSchema, create_model, model_validator

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.spec.base_models import JobModel, Positive
from dp_pipelines.metrics import registry
from dp_pipelines.metrics.base import Metric
from dp_pipelines.metrics.sums import Bound


class MetricModel(JobModel):
    """Base of the models of metrics."""

    metric: ClassVar[type[Metric]]
    weight: Positive = 1.0
    stddev: Annotated[
        Positive | None, Field(description="Instead of a weight: the noise of a count or sum, in its own units.")
    ] = None

    @model_validator(mode="after")
    def _sound(self) -> "MetricModel":
        self.build()
        return self

    def build(self) -> Metric:
        """The library's metric."""
        return self.metric(**{name: value for name, value in self if name != "kind"})


def _model(kind: str, metric: type[Metric]) -> type[MetricModel]:
    """The model of a metric, with the types of its fields."""
    fields: dict[str, Any] = {"kind": (Literal[kind], ...)}
    for field in registry.fields(metric):
        if field.name in MetricModel.model_fields:
            continue
        checked: Any = field.type
        if field.type == Bound:
            # The metric says what is wrong with it, and a whole number stays one: the id of a run is made of what is written.
            checked = Annotated[Any, WithJsonSchema(TypeAdapter(field.type).json_schema())]
        described = Annotated[checked, Field(description=field.description)]
        fields[field.name] = (described, ... if _is_needed(field) else field.default)
    model = create_model(f"{metric.__name__}Metric", __base__=MetricModel, __doc__=_first_sentence(metric), **fields)
    model.metric = metric
    return model


def _is_needed(field: registry.MetricField) -> bool:
    may_be_none = type(None) in typing.get_args(field.type)
    return field.default is dataclasses.MISSING or (field.default is None and not may_be_none)


def _first_sentence(metric: type[Metric]) -> str:
    return inspect.cleandoc(metric.__doc__ or "").partition("\n\n")[0].replace("\n", " ")


MODELS = {kind: _model(kind, metric) for kind, metric in registry.metrics().items()}
"""The model of each kind of metric."""

if typing.TYPE_CHECKING:
    AnyMetric = MetricModel
else:
    AnyMetric = Annotated[functools.reduce(operator.or_, MODELS.values()), Field(discriminator="kind")]
    """Any metric, told apart by its kind."""


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
    fields = {field.name: getattr(metric, field.name) for field in registry.fields(type(metric))}
    return {"kind": metric.kind, **{field: value for field, value in fields.items() if value is not None}}
