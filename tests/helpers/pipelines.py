"""Run a stage over tables in one call, on the runner that jobs use. Tests only."""

import dataclasses

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from dp_pipelines import Plan
from dp_pipelines.release.staging import sorted_by_key
from dp_pipelines.transforms import PrivateAggregate, PublishRelease


def one_stage(query, epsilon=1.0, delta=1e-6):
    """The stage of a plan for one query."""
    return Plan(epsilon=epsilon, delta=delta, stages={"stage": query})["stage"]


def unpaid(stage):
    """The same stage, which no plan pays for and nobody counts."""
    return dataclasses.replace(stage, payment=None)


def publish(stage, tables, output, *, shards=4, salt=7, options=()):
    """Publish a stage over some tables; the released table as read back."""
    with beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions(list(options))) as pipeline:
        source = pipeline | beam.Create(tables, reshuffle=False).with_output_types(pa.Table)
        # One plan in many pipelines, as no user may: what is compared here are draws from the same plan.
        released = source | PrivateAggregate(unpaid(stage), num_shards=shards, salt=salt)
        released | PublishRelease(str(output))
    return pyarrow.parquet.read_table(output / f"{stage.name}.parquet")


def comparable(table, keys):
    """A table as sorted rows."""
    return sorted_by_key(table, keys).to_pylist()
