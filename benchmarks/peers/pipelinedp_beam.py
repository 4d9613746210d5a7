"""The query in PipelineDP on Apache Beam, with privacy. Runs in .venv-peers (see benchmarks/peers/requirements.txt).

In: a folder of Parquet files. Out: workload.report's line; the result is written as text, as PipelineDP's own examples
do. Beam's in-memory runner in one process, which is its fastest local one here; PipelineDP's own accountant and
defaults: Laplace noise, truncated geometric selection.
"""

import json
import logging
import pathlib
import tempfile

import workload

watch = workload.Stopwatch()
logging.disable(logging.WARNING)
import apache_beam as beam  # noqa: E402
import pipeline_dp  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from apache_beam.runners.portability.fn_api_runner import FnApiRunner  # noqa: E402

watch.imports_done()

METRICS = [
    pipeline_dp.Metrics.COUNT,
    pipeline_dp.Metrics.PRIVACY_ID_COUNT,
    pipeline_dp.Metrics.SUM,
    pipeline_dp.Metrics.MEAN,
]


def run(folder: pathlib.Path, out: pathlib.Path) -> None:
    """Read, aggregate, write: one pipeline."""
    accountant = pipeline_dp.NaiveBudgetAccountant(total_epsilon=workload.EPSILON, total_delta=workload.DELTA)
    params = pipeline_dp.AggregateParams(
        metrics=METRICS,
        max_partitions_contributed=workload.MAX_KEYS,
        max_contributions_per_partition=workload.MAX_ROWS,
        min_value=workload.LOW,
        max_value=workload.HIGH,
    )
    extractors = pipeline_dp.DataExtractors(
        privacy_id_extractor=lambda row: row["user"],
        partition_extractor=lambda row: row["key"],
        value_extractor=lambda row: row["value"],
    )
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        events = pipeline | beam.io.ReadFromParquet(workload.files(folder), columns=["user", "key", "value"])
        engine = pipeline_dp.DPEngine(accountant, pipeline_dp.BeamBackend())
        result = engine.aggregate(events, params, extractors)
        accountant.compute_budgets()
        lines = result | beam.MapTuple(
            lambda key, metrics: json.dumps({"key": key, **{name: float(x) for name, x in metrics._asdict().items()}})
        )
        lines | beam.io.WriteToText(str(out / "result"), file_name_suffix=".jsonl", num_shards=1)


def main() -> None:
    """Run once and report."""
    folder = workload.arguments("Count, users, sum and mean per key with PipelineDP on Beam.")
    rows = sum(pq.read_metadata(path).num_rows for path in folder.glob("*.parquet"))
    with tempfile.TemporaryDirectory() as out:
        with watch.query():
            run(folder, pathlib.Path(out))
        (result,) = pathlib.Path(out).glob("*.jsonl")
        table = [json.loads(line) for line in result.read_text().splitlines()]
    columns = {name: [line[name] for line in table] for name in ("count", "privacy_id_count", "sum")}
    workload.report("PipelineDP on Beam", rows, watch, len(table), workload.totals(*columns.values()))


if __name__ == "__main__":
    main()
