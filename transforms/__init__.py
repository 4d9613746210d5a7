"""Beam transforms over the kernels: three imports put a differentially private report into a pipeline of your own.

In: nothing. Out: the transforms. Holds: importing this package loads nothing else; the first name that is used loads Beam, and
what wires tables registers their coder. The transforms only wire things together: the computation is in `dp_pipelines.kernels`,
the release in `dp_pipelines.release`. Not covered: programs for PipelineDP (`pipeline_dp`), which need Beam for Beam alone.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dp_pipelines.extensions.sample_and_aggregate.transform import SampleAndAggregate as SampleAndAggregate
    from dp_pipelines.kernels.columns.csv_format import CsvFormat as CsvFormat
    from dp_pipelines.transforms.collected_estimates import CollectedEstimates as CollectedEstimates
    from dp_pipelines.transforms.join_by_unit import JoinByUnit as JoinByUnit
    from dp_pipelines.transforms.kept_of_stage import KeptShares as KeptShares
    from dp_pipelines.transforms.one_metric import PrivateCount as PrivateCount
    from dp_pipelines.transforms.one_metric import PrivateMean as PrivateMean
    from dp_pipelines.transforms.one_metric import PrivateSum as PrivateSum
    from dp_pipelines.transforms.private_aggregate import BoundContributions as BoundContributions
    from dp_pipelines.transforms.private_aggregate import PrivateAggregate as PrivateAggregate
    from dp_pipelines.transforms.private_aggregate import SelectPartitions as SelectPartitions
    from dp_pipelines.transforms.publish import PublishRelease as PublishRelease
    from dp_pipelines.transforms.publish import StageRelease as StageRelease
    from dp_pipelines.transforms.read import ReadCsv as ReadCsv
    from dp_pipelines.transforms.read import ReadParquet as ReadParquet
    from dp_pipelines.transforms.rows.from_rows import FromRows as FromRows
    from dp_pipelines.transforms.rows.per_key import PrivateCountPerKey as PrivateCountPerKey
    from dp_pipelines.transforms.rows.per_key import PrivateMeanPerKey as PrivateMeanPerKey
    from dp_pipelines.transforms.rows.per_key import PrivateSumPerKey as PrivateSumPerKey
    from dp_pipelines.transforms.rows.row_check import check_row as check_row
    from dp_pipelines.transforms.rows.to_rows import ToRows as ToRows

_ROOMS = {
    "CsvFormat": "kernels.columns.csv_format",
    "CollectedEstimates": "transforms.collected_estimates",
    "JoinByUnit": "transforms.join_by_unit",
    "KeptShares": "transforms.kept_of_stage",
    "PrivateCount": "transforms.one_metric",
    "PrivateMean": "transforms.one_metric",
    "PrivateSum": "transforms.one_metric",
    "BoundContributions": "transforms.private_aggregate",
    "PrivateAggregate": "transforms.private_aggregate",
    "SelectPartitions": "transforms.private_aggregate",
    "PublishRelease": "transforms.publish",
    "StageRelease": "transforms.publish",
    "ReadCsv": "transforms.read",
    "ReadParquet": "transforms.read",
    "FromRows": "transforms.rows.from_rows",
    "PrivateCountPerKey": "transforms.rows.per_key",
    "PrivateMeanPerKey": "transforms.rows.per_key",
    "PrivateSumPerKey": "transforms.rows.per_key",
    "check_row": "transforms.rows.row_check",
    "ToRows": "transforms.rows.to_rows",
    "SampleAndAggregate": "extensions.sample_and_aggregate.transform",
}
"""Where each name is defined; the same as above, for the interpreter."""


def __getattr__(name: str) -> object:
    if name not in _ROOMS and name != "__all__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import dp_pipelines.extensions

    if name == "__all__":
        return dp_pipelines.extensions.installed_names(_ROOMS)
    dp_pipelines.extensions.refuse_missing_name(name, _ROOMS[name])
    found = globals()[name] = getattr(importlib.import_module(f"dp_pipelines.{_ROOMS[name]}"), name)
    return found


def __dir__() -> list[str]:
    import dp_pipelines.extensions

    return sorted({*globals(), *dp_pipelines.extensions.installed_names(_ROOMS)})
