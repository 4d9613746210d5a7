"""`report FOLDER --job JOB --output NEW`: a folder with the page and the files that the job asks for now, at no cost.

In: the shop, with releases that runs have published. Out: folders, messages, exit codes, the ledger. Holds: runs are real, and no
published folder changes. Not covered: cells of CSV (`tests/jobs/outputs`).
"""

import csv
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from dp_pipelines.jobs.outputs.spreadsheet_csv import MARK, SpreadsheetCsv
from dp_pipelines.ledger.ledger import DEFAULT_NAME
from dp_pipelines.release import staging
from tests.helpers.extension_folders import needs
from tests.jobs.conftest import Said, Shop, stage

Call = Callable[..., Said]
KEYS = ["product", "store"]
ALL = {"rounded": True, "interval": True, "wide": True, "delimiter": ";", "bom": True}


def files(*entries: object) -> dict[str, Any]:
    """`outputs:` with these files."""
    return {"files": list(entries)}


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def report(shop: Shop, call: Call, name: str = "new") -> Said:
    return call("report", shop.folder / "out", "--job", shop.job, "--output", shop.folder / name)


def test_a_released_run_gets_csv_for_spreadsheets_and_a_page_for_free(shop: Shop, call: Call) -> None:
    shop.write(stages={"weekly": stage(partition_by=KEYS)})
    assert call("run", shop.job, "--output", shop.folder / "out").code == 0
    before = contents(shop.folder / "out")
    made = stage(partition_by=KEYS, title="Week by week", format=".1f")
    shop.write(stages={"weekly": made}, outputs=files({"csv": ALL}, "jsonl"))
    shop.without_ledger()
    for path in (shop.folder / "data").iterdir():
        path.unlink()
    said = report(shop, call)
    assert (said.code, said.err) == (0, "")
    new = contents(shop.folder / "new")
    assert list(new) == ["report.html", "weekly.csv", "weekly.jsonl"]
    assert b"Week by week" in new["report.html"]
    assert new["weekly.csv"].startswith(MARK)
    with (shop.folder / "new" / "weekly.csv").open(newline="", encoding="utf-8-sig") as file:
        header, first, *_ = csv.reader(file, delimiter=";")
    assert header[:3] == ["product", "orders: 1", "orders: 2"]
    assert all(len(cell.partition(".")[2]) == 1 for cell in first[1:] if cell)
    assert contents(shop.folder / "out") == before
    assert not any(path.name.startswith(".") for path in shop.folder.iterdir())
    assert not (shop.folder / DEFAULT_NAME).exists(), "no ledger is needed, and none is made"


FORMS: dict[str, dict[str, Any]] = {
    "kept": {"kept": {"share": 0.2}},
    "ratio": {"metrics": {**stage()["metrics"], "basket": {"kind": "ratio", "of": "revenue", "to": "orders"}}},  # type: ignore[dict-item]
    "quantiles": {
        "metrics": {
            "price": {"kind": "quantiles", "column": "price", "quantiles": [0.5, 0.9], "min_value": 0, "max_value": 20}
        }
    },
    "shrunk": {
        "metrics": {"mean": {"kind": "mean", "column": "price", "min_value": 0, "max_value": 20, "shrink": True}}
    },
    "rollup": {"partition_by": KEYS, "rollup": [[], ["product"], KEYS]},
    "total": {"partition_by": [], "bounds": {"max_contributions_per_partition": 8}},
    "people": {"metrics": {"buyers": {"kind": "privacy_id_count"}, "orders": {"kind": "count"}}},
    "arms": {
        "partitions": {"public": [["p0"], ["p1"]]}, "compare": {"by": "product", "baseline": "p0", "metrics": ["orders"]},
        "bounds": {"max_partitions_contributed": 1, "max_contributions_per_partition": 3},
        "metrics": {"orders": {"kind": "count"}},
    },
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_files_of_a_release_are_those_that_its_run_would_have_written(shop: Shop, call: Call, form: str) -> None:
    job: dict[str, Any] = {
        "stages": {"weekly": stage(**FORMS[form])},
        "outputs": files({"csv": {"rounded": True, "interval": True, "decimal": ",", "delimiter": ";"}}),
    }
    shop.write(**job)
    said = call("run", shop.job, "--output", shop.folder / "out")
    assert said.code == 0, said.err
    assert report(shop, call).code == 0
    released, new = contents(shop.folder / "out"), contents(shop.folder / "new")
    tables = [name for name in released if name.endswith(".csv")]
    assert len(tables) == (2 if form == "arms" else 1)
    assert {name: new.get(name) for name in tables} == {name: released[name] for name in tables}
    assert sorted(new) == sorted([*tables, "report.html"])


def test_other_options_of_csv_are_no_other_run_and_are_told(shop: Shop, call: Call) -> None:
    shop.write(outputs=files("csv"))
    assert call("run", shop.job, "--output", shop.folder / "out").code == 0
    before, charged = contents(shop.folder / "out"), shop.charged()
    shop.write(outputs=files({"csv": {"rounded": True}}))
    again = call("run", shop.job, "--output", shop.folder / "out")
    assert again.code == 0
    command = f"report {shop.folder / 'out'} --job {shop.job} --output NEW-FOLDER"
    assert "the stored CSV files have other options than the job file" in again.err
    assert command in again.err
    assert (contents(shop.folder / "out"), shop.charged()) == (before, charged)
    assert report(shop, call).code == 0
    assert contents(shop.folder / "new")["weekly.csv"] != before["weekly.csv"]


def test_what_may_not_be_there_or_was_not_published_is_refused_and_nothing_stays(shop: Shop, call: Call) -> None:
    shop.write(stages={"weekly": stage(having="orders > 50")})
    assert call("run", shop.job, "--output", shop.folder / "out").code == 0
    (shop.folder / "there").mkdir()
    (shop.folder / "file").write_text("x")
    before = sorted(path.name for path in shop.folder.iterdir())
    for name, words in (
        ("there", "exists"),
        ("file", "exists"),
        ("out", "published folder, which is never changed"),
        ("out/new", "published folder, which is never changed"),
        ("no/new", "is in a folder that does not exist"),
    ):
        said = report(shop, call, name)
        assert said.code == 2
        assert words in said.err or (name == "out" and "exists" in said.err)
    for having in (None, "orders > 5"):
        shop.write(stages={"weekly": stage(**({} if having is None else {"having": having}))}, outputs=files("csv"))
        said = report(shop, call)
        assert said.code == 2
        assert "stages.weekly.having: is not that of the release, of which all published rows are shown" in said.err
    shop.write(stages={"weekly": stage(having="orders > 50")}, outputs=files({"csv": {"wide": True}}))
    said = report(shop, call)
    assert said.code == 2
    assert "table 'weekly' has fewer than two columns in partition_by" in said.err
    shutil.copytree(shop.folder / "out", shop.folder.parent / "copy")
    several = call(
        "report", shop.folder / "out", shop.folder / "out", "--job", shop.job, "--output", shop.folder / "new"
    )
    assert (several.code, "is for one folder" in several.err) == (2, True)
    assert sorted(path.name for path in shop.folder.iterdir()) == before


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_a_folder_that_cannot_be_finished_does_not_stay(
    shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    assert call("run", shop.job, "--output", shop.folder / "out").code == 0
    shop.write(outputs=files({"csv": {"rounded": True}}))
    before = sorted(path.name for path in shop.folder.iterdir())

    def fails(self: object, table: pathlib.Path, to: pathlib.Path) -> None:
        to.write_text("half")
        assert any(path.name.startswith(".new.staging-") for path in shop.folder.iterdir())
        raise error

    monkeypatch.setattr(SpreadsheetCsv, "write", fails)
    try:
        code = report(shop, call).code
    except KeyboardInterrupt:
        code = 130
    assert code not in (0, 2)
    assert sorted(path.name for path in shop.folder.iterdir()) == before
    monkeypatch.undo()
    monkeypatch.setattr(staging, "give_name", lambda staged, target: (_ for _ in ()).throw(error))
    try:
        code = report(shop, call).code
    except KeyboardInterrupt:
        code = 130
    assert code not in (0, 2)
    assert sorted(path.name for path in shop.folder.iterdir()) == before


@needs("lake")
def test_tables_in_other_places_are_left_to_runs_and_that_is_said(shop: Shop, call: Call) -> None:
    assert call("run", shop.job, "--output", shop.folder / "out").code == 0
    shop.write(outputs={"files": ["csv"], "delta": str(shop.folder / "tables")})
    said = report(shop, call)
    assert said.code == 0
    assert "note: delta of the job is not written: a run alone does" in said.err
    assert sorted(contents(shop.folder / "new")) == ["report.html", "weekly.csv"]
    assert not (shop.folder / "tables").exists()
