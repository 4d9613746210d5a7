"""A release of version 0.1.0 is read as it is, by every later version.

In: the table, the manifest and the job of a release that version 0.1.0 published of made-up rows. Holds: all three were written
for that version, and are never made anew. Not covered: its page, which any version draws anew.
"""

import io
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from dp_pipelines.jobs.request.request import check
from dp_pipelines.jobs.run.run import plan_of
from dp_pipelines.jobs.spec import job_file
from dp_pipelines.jobs.terminal import summary
from dp_pipelines.release import manifest
from dp_pipelines.report import report
from tests.report.page import Page

GOLDEN = Path(__file__).parent / "golden" / "release_0_1_0"


@pytest.fixture(scope="module")
def content() -> dict[str, object]:
    """Its manifest."""
    found = manifest.read_manifest(GOLDEN)
    assert found == json.loads((GOLDEN / "manifest.json").read_text())
    assert found is not None
    return found


def test_each_of_its_metrics_has_words_and_its_plots(content: dict[str, object]) -> None:
    page = Page(report.render(content, {"weekly": GOLDEN / "weekly.parquet"}, {}))
    words = " ".join(page.words.split())
    for name, said in {
        "typical": "a quantile of ",
        "orders": "the number of rows",
        "people": "the number of different customers",
        "mean_price": "the mean of price",
        "spread": "quantiles of price",
        "prices": "the number of rows in each bin",
        "both": "sums of products of columns",  # that version called them second_moment
    }.items():
        assert f"{name} : {said}" in words
    plots = [str(attributes.get("aria-label")) for tag, attributes in page.elements if tag == "svg"]
    for name in ("typical", "orders", "people", "revenue"):
        assert any(title.startswith(f"{name} of ") and "over time" in title for title in plots), name


def test_it_is_printed_with_verdicts_on_what_its_manifest_says() -> None:
    stream = io.StringIO()
    summary.print_release(GOLDEN, stream)
    said = stream.getvalue()
    assert "the first 10 of 12 by product (the largest first), week" in said
    assert "revenue  12 of 12 differ from zero; 0.6 would by chance\n" in said
    assert (
        "mean_price  " not in said.partition("by product (the largest first), week")[2]
    )  # no range stands in its manifest
    assert "so far" not in said


def test_its_table_is_the_one_that_its_manifest_names(content: dict[str, object]) -> None:
    listed = content["files"]
    assert isinstance(listed, dict)
    assert manifest.holds(GOLDEN, {"weekly.parquet": listed["weekly.parquet"]})


def test_its_job_is_the_same_run_today_and_a_new_plan_of_it_is_another(
    tmp_path: Path, content: dict[str, object]
) -> None:
    shutil.copy(GOLDEN / "job.yaml", tmp_path / "job.yaml")
    (tmp_path / "data").mkdir()
    types = {
        "customer": pa.int64(),
        "product": pa.string(),
        "week": pa.string(),
        "price": pa.float64(),
        "store": pa.int32(),
    }
    table = pa.table({name: pa.array([], kind) for name, kind in types.items()})
    pyarrow.parquet.write_table(table, tmp_path / "data" / "a.parquet")
    request = check(job_file.load(str(tmp_path / "job.yaml")), {})
    assert request.content == content["job"]
    # Weights buy other noise since 0.1.0. A plan that a ledger has frozen stays: tests/jobs/run/test_frozen_plans.py.
    assert plan_of(request.file, request.stages).digest != content["plan"]
