"""Which metrics there are, for everything that lists them: job files, manifests, reports, `tune`, tests.

In: the modules of this folder. Out: classes by the name that job files use, and what each of their fields means. Holds: a new
metric is one new file here, with one class that has a `kind`. Not covered: metrics of one's own that stand elsewhere; pipelines
can release them, and nothing here knows them.
"""

import dataclasses
import functools
import importlib
import inspect
import pkgutil
import re
import typing
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from dp_pipelines import metrics as folder
from dp_pipelines.metrics.base import Metric

FORMER = MappingProxyType({"second_moment": "second_moments"})
"""Kinds as manifests of version 0.1.0 name them."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MetricField:
    """What one can say of a metric.

    Args:
        name: of the argument.
        type: its type hint.
        default: its default; `dataclasses.MISSING` where it must be given.
        description: one or more sentences, from the docstring.
    """

    name: str
    type: Any
    default: Any
    description: str


@functools.cache
def metrics() -> Mapping[str, type[Metric]]:
    """Every metric by its kind, in the order of files and lines.

    >>> metrics()["count"].__name__
    'Count'
    """
    found: dict[str, type[Metric]] = {}
    for module in sorted(pkgutil.iter_modules(folder.__path__), key=lambda module: module.name):
        for member in vars(importlib.import_module(f"{folder.__name__}.{module.name}")).values():
            if not (isinstance(member, type) and issubclass(member, Metric) and "kind" in vars(member)):
                continue
            if member.kind and member.__module__.rpartition(".")[2] == module.name:
                assert member.kind not in found, f"two metrics are called {member.kind}"
                found[member.kind] = member
    return MappingProxyType(found)


def of_kind(kind: object) -> type[Metric] | None:
    """The metric of this name, also where a manifest names it as it was called before; None where there is none.

    >>> of_kind("second_moment") is of_kind("second_moments"), of_kind("no_such")
    (True, None)
    """
    return metrics().get(FORMER.get(kind, kind)) if isinstance(kind, str) else None


def is_known(metric: Metric) -> bool:
    """Whether job files and manifests know a metric; one of somebody's own that inherits from one of ours is another.

    >>> is_known(metrics()["count"]())
    True
    """
    return metrics().get(metric.kind) is type(metric)


def name_of(metric: Metric) -> str:
    """What a manifest calls a metric: its kind, or of one of somebody's own the name of its class.

    >>> name_of(metrics()["count"]()), name_of(type("RoundedCount", (metrics()["count"],), {})())
    ('count', 'rounded_count')
    """
    return metric.kind if is_known(metric) else re.sub(r"(?<!^)(?=[A-Z])", "_", type(metric).__name__).lower()


def fields(kind: type[Metric]) -> list[MetricField]:
    """What one can say of a metric, in the order of its arguments.

    >>> [field.name for field in fields(metrics()["median"])]
    ['column', 'weight', 'stddev', 'min_value', 'max_value']
    """
    hints, described = typing.get_type_hints(kind), descriptions(kind)
    return [
        MetricField(name=f.name, type=hints[f.name], default=f.default, description=described.get(f.name, ""))
        for f in dataclasses.fields(kind)
        if f.init
    ]


def descriptions(kind: type) -> dict[str, str]:
    """What docstrings say of arguments, under `Args:`; what a class does not say, the classes above it do.

    >>> descriptions(metrics()["median"])["column"]
    'The column.'
    """
    found: dict[str, str] = {}
    for above in reversed(kind.__mro__):
        text = inspect.cleandoc(vars(above).get("__doc__") or "")
        for block in re.findall(r"^Args[^\n]*:\n((?:(?:    .*)?\n)+)", text + "\n", re.MULTILINE):
            for names, said in re.findall(r"^ {4}(\w+(?:, \w+)*): (.*(?:\n {8}.*)*)", block, re.MULTILINE):
                sentence = " ".join(said.split()).rstrip(";.") + "."
                found |= dict.fromkeys(names.split(", "), sentence[0].upper() + sentence[1:])
    return found
