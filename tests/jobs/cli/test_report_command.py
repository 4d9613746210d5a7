"""The command `report`, on releases that runs have published.

In: the shop, run several times. Out: pages, messages, exit codes. Holds: no published folder changes. Not covered: what the page
says (`tests/report/test_trends.py`).
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.jobs.conftest import Said, Shop, stage
from tests.report.page import Page

Call = Callable[..., Said]

RELEASE = Path(__file__).parents[2] / "report" / "golden" / "release_0_1_0"


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """Two folders of different runs, as copies of a release without a ledger."""
    for name in ("one", "two"):
        shutil.copytree(RELEASE, tmp_path / "out" / name)
    return tmp_path / "out" / "one", tmp_path / "out" / "two"


@pytest.mark.slow
def test_runs_of_a_job_become_one_page_and_stay_as_they_are(shop: Shop, call: Call) -> None:
    shop.write(
        params={"week": {"type": "date"}}, budget={"epsilon": 8.0, "delta": 1e-5, "runs": 3},
        where="paid_at >= {week} AND paid_at < {week} + 7", stages={"weekly": stage()},
    )  # fmt: skip
    weeks = ["2025-01-13", "2025-01-06"]
    for week in weeks:
        said = call("run", shop.job, "--output", shop.folder / week, "--run-id", week, "--param", f"week={week}")
        assert said.code == 0, said.err
    before = [contents(shop.folder / week) for week in weeks]
    said = call("report", *(shop.folder / week for week in weeks), "--output", shop.folder / "trends.html")
    assert (said.code, said.err) == (0, "")
    assert "2 runs of shop" in said.out
    page = Page((shop.folder / "trends.html").read_text())
    assert any(plot.startswith("orders of p") and "2 points" in plot for plot in page.plots)
    assert "parameter week" in page.words
    assert [contents(shop.folder / week) for week in weeks] == before


def test_two_runs_of_an_ordinary_stage_become_one_page(shop: Shop, call: Call) -> None:
    shop.write(budget={"epsilon": 8.0, "delta": 1e-5, "runs": 2})
    folders = [shop.folder / run_id for run_id in ("2026-01", "2026-02")]
    for folder in folders:
        said = call("run", shop.job, "--output", folder, "--run-id", folder.name)
        assert said.code == 0, said.err
    said = call("report", *folders, "--output", shop.folder / "trends.html")
    assert (said.code, said.err) == (0, "")
    page = Page((shop.folder / "trends.html").read_text())
    assert any(plot.startswith("orders of p") and "2 points" in plot for plot in page.plots)


def test_one_folder_gives_its_own_page_drawn_anew(tmp_path: Path, call: Call) -> None:
    said = call("report", RELEASE, "--output", tmp_path / "page.html")
    assert said.code == 0
    words = Page((tmp_path / "page.html").read_text()).words
    assert "How private is this?" in words
    assert "typical : a quantile of price" in words


def test_a_page_that_is_there_is_replaced_and_a_release_is_never_written_to(
    tmp_path: Path, call: Call, two: tuple[Path, Path]
) -> None:
    for _ in range(2):
        assert call("report", two[0], "--output", tmp_path / "page.html").code == 0
    before = contents(two[0])
    said = call("report", two[0], "--output", two[0] / "report.html")
    assert said.code == 2
    assert "is inside a published folder, which is never changed; name a file elsewhere" in said.err
    assert call("report", two[0], "--output", tmp_path).code == 2
    folder = call("report", two[0], "--output", tmp_path / "new")
    assert (folder.code, "is not the name of a page, which ends in .html" in folder.err) == (2, True)
    assert "add --job JOB for a folder of page and files" in folder.err
    assert not (tmp_path / "new").exists()
    assert contents(two[0]) == before


def test_what_does_not_belong_together_is_refused_with_a_hint(
    tmp_path: Path, call: Call, two: tuple[Path, Path]
) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(RELEASE, damaged)
    (damaged / "weekly.parquet").write_bytes(b"")
    changed = tmp_path / "changed"
    shutil.copytree(RELEASE, changed)
    text = (changed / "manifest.json").read_text()
    (changed / "manifest.json").write_text(text.replace('"dataset": "shop"', '"dataset": "other"'))
    for folders, words in (
        (two, "which is also in"),
        ((two[0], changed), "has dataset 'other'"),
        ((two[0], damaged), "is damaged"),
        ((two[0], tmp_path / "none"), "does not exist"),
        ((two[0].parent,), f"is no release; name what is in it: {two[0].parent}/*/"),
        ((tmp_path,), "is no release; name"),
        ((RELEASE / "job.yaml",), "is not a folder"),
    ):
        said = call("report", *folders, "--output", tmp_path / "page.html")
        assert (said.code, said.out) == (2, "")
        assert words in said.err
        assert ";" in said.err
        assert len(said.err.splitlines()) == 1
    assert not (tmp_path / "page.html").exists()


def test_a_page_that_cannot_be_written_is_a_failure(tmp_path: Path, call: Call) -> None:
    said = call("report", RELEASE, "--output", tmp_path / "none" / "page.html")
    assert said.code == 1
    assert "cannot be written" in said.err


def test_tables_of_a_release_become_csv_at_no_cost(shop: Shop, call: Call) -> None:
    shop.write(outputs={"files": ["csv"]})
    out = shop.folder / "out"
    assert call("run", shop.job, "--output", out).code == 0
    before = contents(out)
    said = call("report", out, "--csv", shop.folder / "tables")
    assert (said.code, said.err) == (0, "")
    assert contents(shop.folder / "tables") == {"weekly.csv": before["weekly.csv"]}
    assert contents(out) == before
    again = call("report", out, "--csv", shop.folder / "tables")
    assert (again.code, "exists" in again.err) == (2, True)


@pytest.mark.parametrize("options", [("--output", "page.html"), ("out/two",)])
def test_csv_is_made_of_one_folder_and_beside_no_page(
    two: tuple[Path, Path], call: Call, options: tuple[str, ...]
) -> None:
    place = two[0].parents[1]
    others = [place / option if option.startswith("out/") else option for option in options]
    said = call("report", two[0], *others, "--csv", place / "tables")
    assert (said.code, "--csv" in said.err) == (2, True)
    assert not (place / "tables").exists()


def test_a_changed_release_becomes_no_csv(two: tuple[Path, Path], call: Call) -> None:
    table = next(two[0].glob("*.parquet"))
    table.write_bytes(table.read_bytes()[:-1] + b"x")
    place = two[0].parents[1]
    assert call("report", two[0], "--csv", place / "tables").code == 2
    assert {path.name for path in place.iterdir()} == {"out"}


def test_csv_is_written_into_no_release_and_over_no_link(two: tuple[Path, Path], call: Call) -> None:
    place = two[0].parents[1]
    (place / "link").symlink_to(place / "nowhere")
    before = contents(two[0])
    for target, words in (
        (two[0] / "csv", "published folder"),
        (place / "link", "exists"),
        (place / "no" / "csv", "exist"),
    ):
        said = call("report", two[0], "--csv", target)
        assert (said.code, words in said.err) == (2, True)
    assert contents(two[0]) == before
    assert not (place / "nowhere").exists()
