"""Beam transforms over the kernels: three imports put a differentially private report into a pipeline of your own.

Importing this package imports Beam and registers the coder of Arrow tables. The transforms only wire things together: the
computation is in `dp_pipelines.kernels`, the release in `dp_pipelines.release`.
"""

from dp_pipelines.kernels.columns.csv_format import CsvFormat as CsvFormat
from dp_pipelines.transforms.coder import register
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
from dp_pipelines.transforms.rows.to_rows import ToRows as ToRows
from dp_pipelines.transforms.sample_and_aggregate import SampleAndAggregate as SampleAndAggregate

register()
