"""Jobs over a list that is sorted on disk: what is published, what is said of it, and what is refused."""

import json
import pathlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dp_pipelines as dp
from dp_pipelines.jobs.cli.main import main
from dp_pipelines.jobs.sources import key_lists
from dp_pipelines.jobs.spec import from_query
from dp_pipelines.jobs.terminal.progress import Progress
from dp_pipelines.query.large_list import Condition, LargeList
from tests.helpers.extension_folders import needs
from tests.helpers.key_files import key_file

KEYS = [f"page {number:04d}" for number in range(3000)]
POPULAR = KEYS[::100]
STAGE = """\
    kind: aggregate
    partition_by: page
    bounds: {max_partitions_contributed: 2, max_contributions_per_partition: 1}
    partitions: {public_sorted_file: keys.parquet}
"""
METRICS = "    metrics: {views: {kind: count}, spent: {kind: sum, column: amount, min_value: 0, max_value: 1}}\n"


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Rows of 30 popular pages, read 200 times each, and of pages that are not listed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    pq.write_table(pa.table({"page": KEYS}), tmp_path / "keys.parquet")
    pages = [*np.repeat(POPULAR, 200).tolist(), *["unlisted"] * 6000]
    table = pa.table({"reader": [*range(6000), *range(6000)], "page": pages, "amount": np.ones(12_000)})
    pq.write_table(table, tmp_path / "rows.parquet")
    return tmp_path


def job(folder: pathlib.Path, having: str | None, stage: str = STAGE, metrics: str = METRICS, more: str = "") -> str:
    """The path of a job."""
    said = "" if having is None else f"    having: {json.dumps(having)}\n"
    head = (
        "dataset: views\nprivacy_unit: reader\nbudget: {epsilon: 1.0, delta: 1.0e-6}\nsource: {parquet: rows.parquet}\n"
    )
    (folder / "job.yaml").write_text(f"{head}{more}stages:\n  pages:\n{stage}{said}{metrics}")
    return str(folder / "job.yaml")


def run(folder: pathlib.Path, *arguments: str, name: str = "out") -> tuple[pa.Table, dict[str, Any]]:
    """What a run publishes, and its manifest's entry of the stage."""
    output = folder / name
    assert main(["run", str(folder / "job.yaml"), "--output", str(output), "--ledger", "none", *arguments]) == 0
    (stage,) = json.loads((output / "manifest.json").read_text())["stages"]
    return pq.read_table(output / "pages.parquet"), stage


def refusal(folder: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What `plan` says of a job that is wrong."""
    assert main(["plan", str(folder / "job.yaml")]) == 2
    return capsys.readouterr().err


def test_the_pages_that_pass_are_published_in_the_order_of_their_keys(folder: pathlib.Path) -> None:
    job(folder, "views >= 100 AND 0 < spent")
    table, stage = run(folder)
    assert table.column("page").to_pylist() == POPULAR  # noise alone passes 100 never
    assert stage["listed"]["keys"] == 3000
    assert stage["shown"]["groups"] == 3000
    assert stage["metrics"]["views"]["verdict"]["words"].startswith("30 of 3,000 listed partitions pass")
    assert set(stage["metrics"]) == {"views", "spent"}
    assert "too high on average" in stage["shown"]["words"][0]


def test_rows_of_unlisted_pages_take_no_place_of_the_bound(folder: pathlib.Path) -> None:
    job(folder, "views >= 100", stage=STAGE.replace("max_partitions_contributed: 2", "max_partitions_contributed: 1"))
    table, _ = run(folder)
    assert table.column("views").to_numpy().min() > 150  # 200 less noise; half of them, if bounds saw the others


def test_every_runner_finds_the_same_pages_and_the_list_is_sorted_once(folder: pathlib.Path) -> None:
    job(folder, "views >= 100")
    first, _ = run(folder)
    (made,) = (folder / "cache" / "dp_pipelines" / "lists").iterdir()
    before = made.stat().st_mtime_ns
    second, _ = run(folder, "--runner", "direct", name="again")
    assert first.column("page").equals(second.column("page"))
    assert made.stat().st_mtime_ns == before


def test_noise_alone_publishes_about_as_many_pages_as_plan_says(
    folder: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job(folder, "views >= 3", more="expect: {partitions: 30}\n")
    assert main(["plan", str(folder / "job.yaml"), "--json"]) == 0
    (stage,) = json.loads(capsys.readouterr().out)["stages"]
    expected = stage["listed"]["by_noise"]
    assert "more than 1% of the 30 partitions" in stage["listed"]["warning"]
    table, _ = run(folder)
    alone = table.num_rows - len(POPULAR)
    # Poisson's deviation; 7 of them are exceeded less often than once in 1e9 runs.
    assert 50 < expected < 1500
    assert abs(alone - expected * (2970 / 3000)) < 7 * expected**0.5


WRONG = {
    "unsorted": (["b", "a"], "is not above the one before it, in row 2"),
    "doubled": (["a", "b", "b"], "is there twice, in row 3"),
    "empty": ([], "between 1 and"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_list_that_is_not_sorted_or_has_a_key_twice_is_refused(
    name: str, folder: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed, says = WRONG[name]
    pq.write_table(pa.table({"page": pa.array(listed, pa.string())}), folder / "keys.parquet")
    job(folder, "views >= 1")
    told = refusal(folder, capsys)
    assert says in told
    assert "job.yaml:10: stages.pages.partitions.public_sorted_file" in told
    assert list((folder / "cache").rglob("*.arrow")) == []


CONDITIONS = {
    None: "having: is missing",
    "views + 1 > 3": "is more than comparisons",
    "views > 3 OR spent > 1": "is more than comparisons",
    "views > spent": "compares a metric with what is no number",
    "views = 3": "is more than comparisons",
    "page > 'a'": "compares column 'page', which is no metric",
    "buyers > 3": "names column 'buyers', which this stage does not release",
    "views_stddev > 3": "compares column 'views_stddev', which is no metric",
    "views > {least}": "declare",
}


@pytest.mark.parametrize("having", CONDITIONS)
def test_a_condition_that_has_no_known_chance_is_refused(
    having: str | None, folder: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job(folder, having)
    assert CONDITIONS[having] in refusal(folder, capsys)


def test_a_condition_on_a_mean_is_refused(folder: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    job(folder, "price > 1", metrics="    metrics: {price: {kind: mean, column: amount, min_value: 0, max_value: 1}}\n")
    told = refusal(folder, capsys)
    assert "compares 'price', which is derived from other numbers" in told
    assert "compare a count or a sum, or give" in told


def test_a_parameter_may_be_the_threshold(folder: pathlib.Path) -> None:
    job(folder, "views >= {least}", more="params: {least: {type: int}}\n")
    table, _ = run(folder, "--param", "least=100")
    assert table.column("page").to_pylist() == POPULAR


def test_progress_says_how_much_of_the_list_is_sorted_and_nothing_once_it_is(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list is public, and so is its size."""
    path, seen = job(folder, "views >= 100"), list[str]()
    monkeypatch.setattr(key_lists, "AT_ONCE", 2000)
    monkeypatch.setattr(Progress, "show", lambda _, text: seen.append(text))
    assert main(["plan", path]) == 0
    assert [text.partition(": ")[2] for text in seen if "list" in text] == [
        "0 of 3,000 keys are read", "2,000 of 3,000 keys are read", "all 3,000 keys are read",
    ]  # fmt: skip
    seen.clear()
    assert main(["plan", path]) == 0
    assert not [text for text in seen if "list" in text]


def test_a_query_over_such_a_list_is_no_job_by_itself(folder: pathlib.Path) -> None:
    listed = LargeList(keys=key_file(folder / "listed", KEYS), conditions=(Condition(metric="views", low=100.0),))
    query = dp.Query(
        privacy_unit="reader", partition_by="page", metrics={"views": dp.Count()}, partitions=listed,
        bounds=dp.ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=1),
    )  # fmt: skip
    with pytest.raises(dp.RequestError, match="are a list sorted on disk, which a job names by its file; write a job"):
        from_query.job_of(
            query, "pages", dataset="views", source={"parquet": "rows.parquet"}, folder=folder, epsilon=1.0, delta=1e-6
        )


def test_a_limit_takes_the_first_of_those_that_pass(folder: pathlib.Path) -> None:
    job(folder, "views >= 100", stage=f"{STAGE}    order_by: views desc\n    limit: 5\n")
    table, stage = run(folder)
    assert table.num_rows == 5
    assert stage["shown"]["passed"] == 30


def test_a_missing_file_and_one_without_the_column_are_refused(
    folder: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job(folder, "views >= 1")
    pq.write_table(pa.table({"other": KEYS}), folder / "keys.parquet")
    assert "must have exactly one column 'page'" in refusal(folder, capsys)
    (folder / "keys.parquet").write_text("page\na\n")
    assert "cannot be read as Parquet" in refusal(folder, capsys)
    (folder / "keys.parquet").unlink()
    assert "file not found" in refusal(folder, capsys)


@needs("tune")
def test_tuning_over_such_a_list_is_refused(folder: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = job(folder, "views >= 1")
    assert main(["tune", path, "--output", str(folder / "tuned")]) == 2
    assert "tune would need every partition" in capsys.readouterr().err


def test_the_audit_and_made_up_rows_work(folder: pathlib.Path) -> None:
    path = job(folder, "views >= 100")
    assert main(["audit", path, "--replays", "2000"]) == 0
    assert main(["run", path, "--synthetic", "--output", str(folder / "synthetic")]) == 0
