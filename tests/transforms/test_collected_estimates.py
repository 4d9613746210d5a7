"""Estimates from reports in a pipeline: the same as without one, one report a unit, and refusals when it is built."""

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.testing.util import assert_that

from dp_pipelines.collect.domain import Choices
from dp_pipelines.collect.question import Question
from dp_pipelines.collected.collected_stage import CollectedStage
from dp_pipelines.errors import RequestError
from dp_pipelines.transforms import CollectedEstimates

QUESTION = Question("visited", Choices(("bakery", "dairy", "fish")), epsilon=2)
ROWS = pa.table({"phone": np.arange(3000) % 1000, "value": np.arange(3000) % 4})


def released(tables, **arguments):
    def check(found):
        seen.extend(table.to_pydict() for table in found)
        (table,) = found
        if "wanted" in arguments:
            assert table.equals(arguments["wanted"])
        if "reports" in arguments:
            assert table.column("reports").to_pylist() == [arguments["reports"]] * 3

    seen: list = []
    options = {name: value for name, value in arguments.items() if name not in ("wanted", "reports")}
    with beam.Pipeline("FnApiRunner") as pipeline:
        rows = pipeline | beam.Create(tables).with_output_types(pa.Table)
        assert_that(rows | CollectedEstimates(QUESTION, **options), check)


def test_a_pipeline_publishes_what_all_tables_together_say():
    stage = CollectedStage(QUESTION)
    released([ROWS.slice(0, 7), ROWS.slice(7)], wanted=stage.published(stage.count(ROWS)))


def test_of_a_unit_one_row_counts_however_often_it_reports():
    # A report outside of the alphabet may be the one that is kept of a unit: here there is none.
    rows = ROWS.set_column(1, "value", pa.array(np.arange(3000) % 3))
    released([rows.slice(0, 1500), rows.slice(1500), rows], privacy_unit="phone", reports=1000, num_shards=3)
    released([rows], reports=3000)


def test_no_table_at_all_is_no_report():
    released([], reports=0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"columns": ["a", "b"]}, "must name 1 columns, not 2"),
        ({"privacy_unit": ["phone", "phone"]}, "names a column twice"),
        ({"num_shards": 0}, "num_shards"),
    ],
)
def test_wrong_arguments_are_refused_at_once(arguments, message):
    with pytest.raises(RequestError, match=message):
        CollectedEstimates(QUESTION, **arguments)


def test_declared_types_that_hold_no_reports_are_refused_when_the_pipeline_is_built():
    with pytest.raises(RequestError, match="reports are whole numbers"):
        rows = beam.Pipeline() | beam.Create([{"value": 1.5}])
        rows | CollectedEstimates(QUESTION, types={"value": "double"})
