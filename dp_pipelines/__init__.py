"""dp_pipelines: differentially private reports of user events on Apache Beam, from one budget.

In: nothing. Out: what users import: queries, metrics, plans, models, errors. Holds: importing it loads nothing else; each name
is loaded when it is first used. Not covered: transforms for pipelines of one's own (`dp_pipelines.transforms`) and the command
line (`dp_pipelines.jobs`). ARCHITECTURE.md has the rooms.
"""

import importlib
from typing import TYPE_CHECKING

__version__ = "0.2.0"

if TYPE_CHECKING:
    from dp_pipelines.errors import BudgetError as BudgetError
    from dp_pipelines.errors import DamagedInputError as DamagedInputError
    from dp_pipelines.errors import DpError as DpError
    from dp_pipelines.errors import PublishError as PublishError
    from dp_pipelines.errors import RequestError as RequestError
    from dp_pipelines.extensions.sample_and_aggregate.blocks import Blocks as Blocks
    from dp_pipelines.jobs.session.session import Session as Session
    from dp_pipelines.jobs.session.stored_release import read_release as read_release
    from dp_pipelines.metrics.base import Metric as Metric
    from dp_pipelines.metrics.counts import Count as Count
    from dp_pipelines.metrics.counts import DistinctCount as DistinctCount
    from dp_pipelines.metrics.counts import PrivacyIdCount as PrivacyIdCount
    from dp_pipelines.metrics.geometric_mean import GeometricMean as GeometricMean
    from dp_pipelines.metrics.histogram import Histogram as Histogram
    from dp_pipelines.metrics.quantile import Quantile as Quantile
    from dp_pipelines.metrics.quantiles import Max as Max
    from dp_pipelines.metrics.quantiles import Median as Median
    from dp_pipelines.metrics.quantiles import Min as Min
    from dp_pipelines.metrics.quantiles import Quantiles as Quantiles
    from dp_pipelines.metrics.sums import Mean as Mean
    from dp_pipelines.metrics.sums import Sum as Sum
    from dp_pipelines.metrics.sums import Variance as Variance
    from dp_pipelines.metrics.vectors import SecondMoment as SecondMoment
    from dp_pipelines.metrics.vectors import VectorSum as VectorSum
    from dp_pipelines.planning.plan import Plan as Plan
    from dp_pipelines.query.best import Best as Best
    from dp_pipelines.query.compare import Compare as Compare
    from dp_pipelines.query.evaluation_groups import EvaluationGroups as EvaluationGroups
    from dp_pipelines.query.expectation import Expectation as Expectation
    from dp_pipelines.query.federate_model import FederateModel as FederateModel
    from dp_pipelines.query.federate_model import Rounds as Rounds
    from dp_pipelines.query.kept import Kept as Kept
    from dp_pipelines.query.models.pate_model import PateModel as PateModel
    from dp_pipelines.query.models.pate_model import Teachers as Teachers
    from dp_pipelines.query.query import ContributionBounds as ContributionBounds
    from dp_pipelines.query.query import PrivatePartitions as PrivatePartitions
    from dp_pipelines.query.query import PublicPartitions as PublicPartitions
    from dp_pipelines.query.query import Query as Query
    from dp_pipelines.query.query import Top as Top
    from dp_pipelines.query.rollup import Rollup as Rollup
    from dp_pipelines.query.train_model import MLP as MLP
    from dp_pipelines.query.train_model import BinaryLabel as BinaryLabel
    from dp_pipelines.query.train_model import Category as Category
    from dp_pipelines.query.train_model import ClassLabel as ClassLabel
    from dp_pipelines.query.train_model import FitCandidate as FitCandidate
    from dp_pipelines.query.train_model import JaxModel as JaxModel
    from dp_pipelines.query.train_model import LinearModel as LinearModel
    from dp_pipelines.query.train_model import Number as Number
    from dp_pipelines.query.train_model import NumberLabel as NumberLabel
    from dp_pipelines.query.train_model import Steps as Steps
    from dp_pipelines.query.train_model import TrainModel as TrainModel
    from dp_pipelines.query.windows import Windows as Windows

_ROOMS = {
    "BudgetError": "errors",
    "DamagedInputError": "errors",
    "DpError": "errors",
    "PublishError": "errors",
    "RequestError": "errors",
    "Metric": "metrics.base",
    "Count": "metrics.counts",
    "DistinctCount": "metrics.counts",
    "PrivacyIdCount": "metrics.counts",
    "GeometricMean": "metrics.geometric_mean",
    "Histogram": "metrics.histogram",
    "Quantile": "metrics.quantile",
    "Max": "metrics.quantiles",
    "Median": "metrics.quantiles",
    "Min": "metrics.quantiles",
    "Quantiles": "metrics.quantiles",
    "Mean": "metrics.sums",
    "Sum": "metrics.sums",
    "Variance": "metrics.sums",
    "SecondMoment": "metrics.vectors",
    "VectorSum": "metrics.vectors",
    "Expectation": "query.expectation",
    "Plan": "planning.plan",
    "Best": "query.best",
    "Compare": "query.compare",
    "FederateModel": "query.federate_model",
    "Rounds": "query.federate_model",
    "Kept": "query.kept",
    "PateModel": "query.models.pate_model",
    "Teachers": "query.models.pate_model",
    "ContributionBounds": "query.query",
    "PrivatePartitions": "query.query",
    "PublicPartitions": "query.query",
    "Query": "query.query",
    "Top": "query.query",
    "Rollup": "query.rollup",
    "MLP": "query.train_model",
    "BinaryLabel": "query.train_model",
    "Category": "query.train_model",
    "ClassLabel": "query.train_model",
    "EvaluationGroups": "query.evaluation_groups",
    "FitCandidate": "query.train_model",
    "JaxModel": "query.train_model",
    "LinearModel": "query.train_model",
    "Number": "query.train_model",
    "NumberLabel": "query.train_model",
    "Steps": "query.train_model",
    "TrainModel": "query.train_model",
    "Windows": "query.windows",
    "Blocks": "extensions.sample_and_aggregate.blocks",
    "Session": "jobs.session.session",
    "read_release": "jobs.session.stored_release",
}
"""Where each name is defined; the same as above, for the interpreter."""


def __getattr__(name: str) -> object:
    if name not in _ROOMS and name != "__all__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import dp_pipelines.extensions

    if name == "__all__":
        return ["__version__", *dp_pipelines.extensions.installed_names(_ROOMS)]
    dp_pipelines.extensions.refuse_missing_name(name, _ROOMS[name])
    found = globals()[name] = getattr(importlib.import_module(f"dp_pipelines.{_ROOMS[name]}"), name)
    return found


def __dir__() -> list[str]:
    import dp_pipelines.extensions

    return sorted({*globals(), *dp_pipelines.extensions.installed_names(_ROOMS)})
