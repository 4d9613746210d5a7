"""Jobs with a list that is sorted on disk as the finest level of a rollup: totals by country beside the pages that pass."""

import json
import math
import pathlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dp_pipelines.jobs.cli.main import main
from tests.report.page import Page

COUNTRIES, PAGES = ("at", "de", "fr"), [f"page {number:03d}" for number in range(700)]
POPULAR = ["page 000", "page 100", "page 300"]
JOB = """\
dataset: views
privacy_unit: reader
budget: {epsilon: 8.0, delta: 1.0e-6}
source: {parquet: rows.parquet}
stages:
  pages:
    kind: aggregate
    partition_by: [country, page]
    rollup: [[], [country], [country, page]]
    bounds: {max_partitions_contributed: 2, max_contributions_per_partition: 1}
    partitions: {public_sorted_file: keys.parquet}
    metrics:
      views: {kind: count}
      readers: {kind: privacy_id_count}
      spent: {kind: sum, column: amount, min_value: 0, max_value: 1}
"""


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Rows of popular pages of two countries, each read by 300, of pages that few read and of unlisted ones."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    keys = [(country, page) for country in COUNTRIES for page in PAGES]
    columns = {name: list(column) for name, column in zip(("country", "page"), zip(*keys, strict=True), strict=True)}
    pq.write_table(pa.table(columns), tmp_path / "keys.parquet")
    visits = [(c, p) for c in ("at", "de") for p in POPULAR for _ in range(300)]
    visits += [("fr", page) for page in PAGES] + [("de", "unlisted")] * 200
    country, page = (list(column) for column in zip(*visits, strict=True))
    rows = {"reader": range(len(visits)), "country": country, "page": page, "amount": np.ones(len(visits))}
    pq.write_table(pa.table({name: list(column) for name, column in rows.items()}), tmp_path / "rows.parquet")
    return tmp_path


def job(folder: pathlib.Path, **more: str) -> str:
    """The path of the job with more keys of its stage, each as JSON."""
    said = "".join(f"    {key}: {json.dumps(value)}\n" for key, value in more.items())
    (folder / "job.yaml").write_text(JOB + said)
    return str(folder / "job.yaml")


def run(folder: pathlib.Path, *arguments: str, name: str = "out") -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The rows that a run publishes, and its manifest's entry of the stage."""
    output = folder / name
    assert main(["run", str(folder / "job.yaml"), "--output", str(output), "--ledger", "none", *arguments]) == 0
    (stage,) = json.loads((output / "manifest.json").read_text())["stages"]
    return pq.read_table(output / "pages.parquet").to_pylist(), stage


def wrong_sums(rows: list[dict[str, Any]]) -> list[str]:
    """Where numbers do not add up."""
    found = []
    for name in ("views", "spent"):
        by_country = {row["country"]: row[name] for row in rows if row["level"] == 1}
        (total,) = [row[name] for row in rows if row["level"] == 0]
        found += [name] if math.fsum(by_country.values()) != total else []
        for country, whole in by_country.items():
            parts = [row[name] for row in rows if row["level"] == 2 and row["country"] == country]
            found += [f"{name} of {country}"] if math.fsum(parts) != whole else []
    return found


@pytest.mark.parametrize("runner", ["local", "direct", pytest.param("portable", marks=pytest.mark.slow)])
def test_countries_are_their_pages_that_pass_and_the_rest(
    folder: pathlib.Path, runner: str, capsys: pytest.CaptureFixture[str]
) -> None:
    job(folder, having="views_raw >= 100", order_by="views desc")
    rows, stage = run(folder, "--runner", runner)
    assert wrong_sums(rows) == []
    finest = [row for row in rows if row["level"] == 2 and not row["rest"]]
    # Noise alone passes 100 never: its deviation is below 4.
    assert [(row["country"], row["page"]) for row in finest] == [(c, p) for c in ("at", "de") for p in POPULAR]
    assert {row["country"] for row in rows if row["level"] == 1} == set(COUNTRIES), "groups above are all published"
    rest = {row["country"]: row for row in rows if row["rest"]}
    assert set(rest) == set(COUNTRIES)
    assert {rest["fr"]["page"], rest["fr"]["readers"]} == {None}
    assert abs(rest["fr"]["views_raw"] - 700) < 100
    assert stage["listed"]["keys"] == 2100
    assert stage["shown"] | {"words": []} == {
        "having": "views_raw >= 100", "order_by": ["views desc"], "limit": None, "groups": 2100, "passed": 6, "rows": 6,
        "words": [],
    }  # fmt: skip
    assert stage["metrics"]["views_raw"]["verdict"]["words"].startswith("6 of 2,100 listed partitions pass views_raw")
    said = " ".join(capsys.readouterr().out.split())
    assert "pages · 13 rows, with 6 of 2,100 finest partitions" in said
    page = " ".join(Page((folder / "out" / "report.html").read_text()).words.split())
    for words in (said, page):
        assert "6 of 2,100 finest groups pass `views_raw >= 100`; numbers just above a threshold are too high" in words
        assert "it is in the `rest` of the group above it" in words
        assert "a group is exactly the sum of its parts, with the row of the rest" in words


def test_a_limit_takes_the_first_of_those_that_pass(folder: pathlib.Path) -> None:
    job(folder, having="views_raw >= 100 AND spent_raw > 0", order_by="views desc", limit=2)
    rows, stage = run(folder)
    assert wrong_sums(rows) == []
    assert sum(row["level"] == 2 and not row["rest"] for row in rows) == stage["shown"]["rows"] == 2
    assert stage["shown"]["passed"] == 6


@pytest.mark.usefixtures("rare_false_alarms")
def test_plan_audit_and_made_up_rows(folder: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = job(folder, having="views_raw >= 10")
    assert main(["plan", path, "--json"]) == 0
    stages = {said["name"]: said for said in json.loads(capsys.readouterr().out)["stages"]}
    assert set(stages) == {"pages.level0", "pages.level1", "pages"}
    assert stages["pages"]["listed"]["having"] == "views_raw >= 10"
    assert 0 < stages["pages"]["listed"]["by_noise"] < 2100
    assert main(["audit", path, "--replays", "2000"]) == 0
    assert main(["run", path, "--synthetic", "--output", str(folder / "synthetic")]) == 0


WRONG = {
    "views >= 90": "compares 'views', which is made to fit the groups above it once noise is drawn; compare views_raw",
    "views_raw_stddev > 3": "compares column 'views_raw_stddev', which is no metric",
    "country = 'at'": "is more than comparisons",
    "level = 2": "does not release",
}


@pytest.mark.parametrize("having", WRONG)
def test_a_condition_on_what_is_not_drawn_is_refused(
    having: str, folder: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", job(folder, having=having)]) == 2
    told = capsys.readouterr().err
    assert WRONG[having] in told
    assert "job.yaml:" in told


def test_without_a_condition_it_is_refused(folder: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", job(folder)]) == 2
    assert "having: is missing" in capsys.readouterr().err
