"""List of all metrics, for job files, manifests, reports, `tune` and tests.

In: the modules of this folder. Out: classes by the name that job files use. Holds: a new metric is one new file here, with one
class that has a `kind`. Not covered: a user's own metrics in other modules; pipelines can release them, and nothing here
knows them.
"""

import functools
import importlib
import pkgutil
import re
from collections.abc import Mapping
from types import MappingProxyType

from dp_pipelines import metrics as folder
from dp_pipelines.metrics.base import Metric

FORMER = MappingProxyType({"second_moment": "second_moments"})
"""Today's kinds by the kinds in manifests of version 0.1.0."""


@functools.cache
def metrics() -> Mapping[str, type[Metric]]:
    """Return every metric by its kind, in the order of files and lines.

    >>> metrics()["count"].__name__
    'Count'
    """
    by_kind: dict[str, type[Metric]] = {}
    for module in sorted(pkgutil.iter_modules(folder.__path__), key=lambda module: module.name):
        for member in vars(importlib.import_module(f"{folder.__name__}.{module.name}")).values():
            if not (isinstance(member, type) and issubclass(member, Metric) and "kind" in vars(member)):
                continue
            if member.kind and member.__module__.rpartition(".")[2] == module.name:
                assert member.kind not in by_kind, f"two metrics are called {member.kind}"
                by_kind[member.kind] = member
    return MappingProxyType(by_kind)


def of_kind(kind: object) -> type[Metric] | None:
    """Return the metric of this kind, or None. Accepts old kinds too, as manifests of earlier versions have them.

    >>> of_kind("second_moment") is of_kind("second_moments"), of_kind("no_such")
    (True, None)
    """
    return metrics().get(FORMER.get(kind, kind)) if isinstance(kind, str) else None


def is_known(metric: Metric) -> bool:
    """Return True if job files and manifests know a metric. A user's subclass of one of ours is not known.

    >>> is_known(metrics()["count"]())
    True
    """
    return metrics().get(metric.kind) is type(metric)


def name_of(metric: Metric) -> str:
    """Return the name of a metric in manifests: its kind, or for a user's own metric the name of its class.

    >>> name_of(metrics()["count"]()), name_of(type("RoundedCount", (metrics()["count"],), {})())
    ('count', 'rounded_count')
    """
    return metric.kind if is_known(metric) else re.sub(r"(?<!^)(?=[A-Z])", "_", type(metric).__name__).lower()
