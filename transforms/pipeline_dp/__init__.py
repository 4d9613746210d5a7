"""A drop-in for PipelineDP: change `import pipeline_dp` to `from dp_pipelines.transforms import pipeline_dp`.

In: programs written for PipelineDP 0.3 (DPEngine with BeamBackend or LocalBackend, or `private_beam`). Out: results of the
same form, on the path of dp_pipelines: rows are batched into Arrow as they come out of the extractors, contributions are
bounded by hashes, and one plan accounts for everything that the accountant's aggregations release. PipelineDP's own
descriptions (parameters, metrics, extractors, backends) are passed on as they are; the engine, the accountants and the transforms
are ours. Beam is loaded by what needs it. docs/pipeline_dp.md says what maps to what, what differs and what is refused. Needs the
extra `pipeline-dp`.
"""

import importlib
import importlib.util
import sys
from typing import TYPE_CHECKING

if importlib.util.find_spec("pipeline_dp") is None:
    raise ModuleNotFoundError(
        "dp_pipelines.transforms.pipeline_dp: needs PipelineDP, because it reads its parameters; "
        "install dp-pipelines[pipeline-dp] (Python 3.11 to 3.13)",
        name="pipeline_dp",
    )

from dp_pipelines.transforms.pipeline_dp import later_imports

if "pipeline_dp" not in sys.modules:
    later_imports.load_pipeline_dp()

from pipeline_dp import AddDPNoiseParams as AddDPNoiseParams
from pipeline_dp import AggregateParams as AggregateParams
from pipeline_dp import BeamBackend as BeamBackend
from pipeline_dp import CalculatePrivateContributionBoundsParams as CalculatePrivateContributionBoundsParams
from pipeline_dp import CountParams as CountParams
from pipeline_dp import DataExtractors as DataExtractors
from pipeline_dp import LocalBackend as LocalBackend
from pipeline_dp import MeanParams as MeanParams
from pipeline_dp import Metrics as Metrics
from pipeline_dp import NoiseKind as NoiseKind
from pipeline_dp import PartitionSelectionStrategy as PartitionSelectionStrategy
from pipeline_dp import PipelineBackend as PipelineBackend
from pipeline_dp import PreAggregateExtractors as PreAggregateExtractors
from pipeline_dp import PrivacyIdCountParams as PrivacyIdCountParams
from pipeline_dp import PrivateContributionBounds as PrivateContributionBounds
from pipeline_dp import SelectPartitionsParams as SelectPartitionsParams
from pipeline_dp import SparkRDDBackend as SparkRDDBackend
from pipeline_dp import SumParams as SumParams
from pipeline_dp import VarianceParams as VarianceParams
from pipeline_dp.aggregate_params import NormKind as NormKind

from dp_pipelines.transforms.pipeline_dp import report_generator as report_generator
from dp_pipelines.transforms.pipeline_dp import submodules as submodules
from dp_pipelines.transforms.pipeline_dp.budget_accounting import BudgetAccountant as BudgetAccountant
from dp_pipelines.transforms.pipeline_dp.budget_accounting import NaiveBudgetAccountant as NaiveBudgetAccountant
from dp_pipelines.transforms.pipeline_dp.budget_accounting import PLDBudgetAccountant as PLDBudgetAccountant
from dp_pipelines.transforms.pipeline_dp.dp_engine import DPEngine as DPEngine
from dp_pipelines.transforms.pipeline_dp.dp_engine import check_row as check_row
from dp_pipelines.transforms.pipeline_dp.report_generator import ExplainComputationReport as ExplainComputationReport

if TYPE_CHECKING:
    from dp_pipelines.transforms.pipeline_dp import private_beam as private_beam
    from dp_pipelines.transforms.pipeline_dp.private_beam import MakePrivate as MakePrivate
    from dp_pipelines.transforms.pipeline_dp.private_beam import PrivatePCollection as PrivatePCollection

submodules.install(__name__)


def __getattr__(name: str) -> object:
    if name not in later_imports.OF_BEAM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return later_imports.of_beam(__name__, name)
