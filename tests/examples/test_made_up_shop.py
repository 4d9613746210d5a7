"""examples/shop, with which the README begins: the same rows each time, the job on the page, numbers that are clear.

In: the scripts and the job file. Out: rows, a release. Holds: the picture on the page has a modest size. Not covered: whether it
shows today's report.
"""

import importlib.util
import pathlib
import re
import struct
import types

import numpy as np
import pyarrow.parquet as pq
import pytest

from dp_pipelines.jobs.run import run
from dp_pipelines.jobs.spec import job_file
from dp_pipelines.metrics.error_bars import ERROR_BAR
from tests.docs.blocks import blocks
from tests.helpers.source import ROOT
from tests.report.page import Page

SHOP = ROOT / "examples" / "shop"
WORDS_A_MINUTE = 250
"""So many words people read in a minute."""

README = (ROOT / "README.md").read_text()


@pytest.fixture(scope="module")
def make_rows() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("make_rows", SHOP / "make_rows.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_job_of_the_front_pages_is_the_one_that_their_reader_copies(page: str) -> None:
    [shown] = [block.text for block in blocks((ROOT / page).read_text()) if block.rule == "file"]
    assert shown == (SHOP / "weekly.yaml").read_text()
    assert len(shown.splitlines()) == 12


def test_rows_are_the_same_each_time_and_fit_the_bounds_of_most(make_rows: types.ModuleType) -> None:
    rows = make_rows.rows()
    assert rows.equals(make_rows.rows())
    assert 200_000 < rows.num_rows < 300_000
    groups = rows.group_by(["customer_id", "city", "week"]).aggregate([([], "count_all")])
    assert np.mean(groups["count_all"].to_numpy() <= 4) > 0.75
    weeks = groups.group_by("customer_id").aggregate([([], "count_all")])
    assert np.mean(weeks["count_all"].to_numpy() <= 8) > 0.95


def test_a_reader_gets_from_a_clone_to_a_report_in_less_than_ten_lines() -> None:
    before_the_rest = README.partition("## A report of your own")[0]
    lines = [line for block in blocks(before_the_rest) if block.language == "sh" for line in block.text.splitlines()]
    assert len(lines) < 10
    assert lines[0].startswith("make dist")
    assert "dp-pipelines run weekly.yaml" in lines[-1]


def test_the_readme_is_one_page() -> None:
    assert len(README.split()) <= 700


def test_the_picture_has_a_modest_size() -> None:
    assert "](docs/images/report.png)" in README
    picture = (ROOT / "docs" / "images" / "report.png").read_bytes()
    assert len(picture) < 200_000
    assert struct.unpack(">II", picture[16:24])[0] == 960


def test_each_picture_of_a_page_has_a_modest_size_and_stands_in_the_documents() -> None:
    pictures = {path.name: path for path in (ROOT / "docs" / "images").glob("*.png")}
    assert len(pictures) >= 5
    documents = "".join(path.read_text() for path in (ROOT / "docs").rglob("*.md"))
    for name, path in pictures.items():
        assert path.stat().st_size < 200_000, name
        assert f"images/{name})" in documents, name


@pytest.mark.slow
def test_its_page_answers_in_a_minute_how_much_when_how_sure_and_who_is_protected(
    make_rows: types.ModuleType, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "data").mkdir()
    rows = make_rows.rows()
    pq.write_table(rows, tmp_path / "data" / "shop.parquet")
    (tmp_path / "weekly.yaml").write_text((SHOP / "weekly.yaml").read_text())
    run.run(job_file.load(str(tmp_path / "weekly.yaml")), str(tmp_path / "out"), ledger="none")
    words = Page((tmp_path / "out" / "report.html").read_text()).words
    first = " ".join(words.partition("Differentially private release")[2].split()[:WORDS_A_MINUTE])
    revenue = re.search(r"revenue ([\d,]+) ± ([\d,]+) ", first)
    assert revenue is not None
    value, bar = (float(text.replace(",", "")) for text in revenue.groups())
    # The run chooses limits that keep nearly all; the range says so where it can be told from the noise.
    assert 0.85 < value / np.minimum(rows["price"].to_numpy(), 60).sum() < 1.05
    assert bar < 0.05 * value
    assert re.search(
        r"Highest week, summed over the 4 published values of city, as counted: 2026-\d\d-\d\d with [\d,]+ ± [\d,]+",
        first,
    )
    assert "Each customer is protected" in first
    assert "± does not include what the limits leave out" in first


@pytest.mark.slow
def test_every_number_of_its_report_stands_out_of_the_noise(
    make_rows: types.ModuleType, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "data").mkdir()
    pq.write_table(make_rows.rows(), tmp_path / "data" / "shop.parquet")
    (tmp_path / "weekly.yaml").write_text((SHOP / "weekly.yaml").read_text())
    run.run(job_file.load(str(tmp_path / "weekly.yaml")), str(tmp_path / "out"), ledger="none")
    table = pq.read_table(tmp_path / "out" / "weekly.parquet").to_pydict()
    assert len(table["city"]) == 48
    for name in ("orders", "revenue"):
        values, deviations = np.array(table[name]), np.array(table[f"{name}_stddev"])
        assert np.mean(np.abs(values) > 2 * ERROR_BAR * deviations) > 0.9
