"""Hints that name the job file's words are shown in the words of who reads them: a job file, or a Beam program.

In: stages over columns of wrong types, in every form in which rows come; the source of the library. Holds: no hint tells a
program to write `columns:`, whether the error comes when the pipeline is built or from a worker. Not covered: training.
"""

import ast
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pytest

import dp_pipelines as dp
from dp_pipelines.errors import RequestError
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.transforms import PrivateAggregate, check_row
from dp_pipelines.transforms.program_words import FOR_JOBS, FOR_PROGRAMS
from tests.helpers.source import modules

METRICS: dict[str, tuple[str, dp.Metric, Any, str]] = {
    "a float that partitions": ("value", dp.Count(), 1.5, "double"),
    "a text that is summed": ("k", dp.Sum("value", min_value=0, max_value=1), "x", "string"),
    "different floats": ("k", dp.DistinctCount("value"), 1.5, "double"),
}


def _stage(case: str) -> StagePlan:
    by, metric, _, _ = METRICS[case]
    bounds = dp.ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1)
    query = dp.Query(privacy_unit="u", partition_by=by, metrics={"n": metric}, bounds=bounds)
    return dp.Plan(epsilon=1.0, delta=1e-6, stages={"s": query})["s"]


def _dicts(row: dict[str, Any], types: dict[str, str], stage: StagePlan) -> None:
    with beam.Pipeline("FnApiRunner") as pipeline:
        pipeline | beam.Create([row]) | PrivateAggregate(stage, types=types)


def _fields(row: dict[str, Any], types: dict[str, str], stage: StagePlan) -> None:
    with beam.Pipeline("FnApiRunner") as pipeline:
        pipeline | beam.Create([beam.Row(**row)]) | PrivateAggregate(stage)


def _tables(row: dict[str, Any], types: dict[str, str], stage: StagePlan) -> None:
    with beam.Pipeline("FnApiRunner") as pipeline:
        pipeline | beam.Create([pa.Table.from_pylist([row])]) | PrivateAggregate(stage)


def _checked(row: dict[str, Any], types: dict[str, str], stage: StagePlan) -> None:
    check_row(stage, types, row)


@pytest.mark.parametrize("case", METRICS)
@pytest.mark.parametrize("ask", [_dicts, _fields, _tables, _checked])
def test_a_hint_about_a_type_is_for_programs(
    case: str, ask: Callable[[dict[str, Any], dict[str, str], StagePlan], None]
) -> None:
    value, kind = METRICS[case][2:]
    row, types = {"u": "a", "k": "b", "value": value}, {"u": "string", "k": "string", "value": kind}
    with pytest.raises((RequestError, RuntimeError)) as refused:
        ask(row, types, _stage(case))
    assert FOR_PROGRAMS in str(refused.value)
    assert "columns:" not in str(refused.value)


def _hints(tree: ast.Module) -> Iterator[str]:
    """The texts of hints, as arguments and as names."""
    for node in ast.walk(tree):
        names = [node.arg] if isinstance(node, ast.keyword) else []
        names += [ast.unparse(target) for target in node.targets] if isinstance(node, ast.Assign) else []
        if "hint" in names and isinstance(node, (ast.keyword, ast.Assign)):
            yield ast.unparse(node.value)


def test_a_hint_of_the_library_says_which_words_are_those_of_a_job_file() -> None:
    library = {n: ast.parse(path.read_text()) for n, path in modules().items() if not n.startswith("dp_pipelines.jobs")}
    hints = [(name, hint) for name, tree in library.items() for hint in _hints(tree) if "columns:" in hint]
    begins = FOR_JOBS.replace("{", "{{")
    assert len(hints) > 5
    assert [
        (name, hint) for name, hint in hints if not (FOR_JOBS in hint or begins in hint or "in a job file" in hint)
    ] == []
