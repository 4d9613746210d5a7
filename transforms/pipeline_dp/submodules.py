"""PipelineDP's submodules under this package's name, so that `from ...pipeline_dp.aggregate_params import SumParams` works.

In: the name of this package. Out: modules of PipelineDP that only describe, passed on as they are; in place of those whose
noise no plan accounts for, or that need Spark, modules whose every name is refused with a hint. Holds: importing a refused
module is no error, so that a program may import what it does not use. Not covered: modules that this folder has itself.
"""

import importlib
import sys
import types
from typing import Any, NoReturn

from dp_pipelines.errors import RequestError

PASSED_ON = (
    "aggregate_params",
    "beam_backend",
    "data_extractors",
    "input_validators",
    "pipeline_backend",
    "pipeline_functions",
    "sampling_utils",
)

_METRIC = "use a metric, or SampleAndAggregate for a function of your own"
_SPARK = "run it as a Beam pipeline; Beam has a Spark runner (docs/runners.md)"
_PLAN = 'use "plan" and "tune" of a job file (docs/tune.md)'
_OWN_NOISE = "draws noise that no plan accounts for"
_COPIES = "reads exact numbers of single people"

REFUSED = {
    "analysis": ("is not part of PipelineDP's package", _PLAN),
    "combiners": (_OWN_NOISE, _METRIC),
    "contribution_bounders": ("is replaced by bounds on a keyed hash of each person's rows", "declare the bounds"),
    "dataframes": (
        "works on Spark data frames",
        "use dp_pipelines.Query, whose metrics name their columns, with Session or PrivateAggregate",
    ),
    "dataset_histograms": (_COPIES, _PLAN),
    "dataset_histograms.computing_histograms": (_COPIES, _PLAN),
    "dataset_histograms.count_histogram_computation": (_COPIES, _PLAN),
    "dataset_histograms.histogram_error_estimator": (_COPIES, _PLAN),
    "dataset_histograms.histograms": (_COPIES, _PLAN),
    "dataset_histograms.sum_histogram_computation": (_COPIES, _PLAN),
    "dp_computations": (_OWN_NOISE, _METRIC),
    "partition_selection": (_OWN_NOISE, "use select_partitions, or aggregate without public_partitions"),
    "private_contribution_bounds": (
        "spends budget outside the accountant",
        "write max_partitions_contributed: auto in a job file (docs/guide.md), or declare the bound",
    ),
    "private_spark": ("needs Spark", _SPARK),
    "spark_rdd_backend": ("needs Spark", _SPARK),
}
"""Modules without a counterpart: why, and what to use instead."""


REFUSED_NAMES = {
    ("dp_engine", "DpNoiseAdditionResult"): (
        "is what add_dp_noise returns, whose sensitivity nobody has enforced",
        "aggregate the rows with aggregate()",
    ),
    ("report_generator", "ReportGenerator"): (
        "is made by the engine, from the plan",
        "pass an ExplainComputationReport as out_explain_computation_report, and read its text()",
    ),
}
"""Names in modules that this folder has itself: why they have no counterpart, and what to use instead."""


class NoCounterpartError(RequestError, ImportError):
    """A name of PipelineDP has no counterpart here. An ImportError too: a program may try the import and go on without it."""


class _Refused(types.ModuleType):
    """A module whose names are refused when somebody asks for one."""

    def __init__(self, name: str, short: str, message: str, hint: str) -> None:
        super().__init__(name, f"Refused: {message}; {hint}.")
        self.__path__: list[str] = []  # it may have submodules in PipelineDP
        self.__dict__["_refusal"] = (short, message, hint)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what Python itself asks modules for
            raise AttributeError(name)
        short, message, hint = self.__dict__["_refusal"]
        raise NoCounterpartError(field=f"pipeline_dp.{short}.{name}", message=message, hint=hint)


def refuse_name(module: str, name: str) -> NoReturn:
    """Refuse a name that a module of this folder does not have.

    Args:
        module: its last name.
        name: that somebody asks for.

    Raises:
        NoCounterpartError: PipelineDP has it, and there is no counterpart.
        AttributeError: nobody has it.
    """
    if (module, name) not in REFUSED_NAMES:
        raise AttributeError(f"module 'dp_pipelines.transforms.pipeline_dp.{module}' has no attribute {name!r}")
    message, hint = REFUSED_NAMES[module, name]
    raise NoCounterpartError(field=f"pipeline_dp.{module}.{name}", message=message, hint=hint)


def install(package: str) -> None:
    """Make all of them importable as submodules of a package.

    Args:
        package: the full name of the package, which is being imported.

    >>> from dp_pipelines.transforms.pipeline_dp.aggregate_params import SumParams
    >>> from dp_pipelines.transforms.pipeline_dp import dataframes
    >>> dataframes.QueryBuilder
    Traceback (most recent call last):
    ...
    dp_pipelines.transforms.pipeline_dp.submodules.NoCounterpartError: pipeline_dp.dataframes.QueryBuilder: works on Spark \
data frames; use dp_pipelines.Query, whose metrics name their columns, with Session or PrivateAggregate
    """
    modules: dict[str, types.ModuleType] = {name: importlib.import_module(f"pipeline_dp.{name}") for name in PASSED_ON}
    modules |= {name: _Refused(f"{package}.{name}", name, *why) for name, why in REFUSED.items()}
    for name, module in modules.items():
        sys.modules[f"{package}.{name}"] = module
        parent, _, last = f"{package}.{name}".rpartition(".")
        setattr(sys.modules[parent], last, module)
