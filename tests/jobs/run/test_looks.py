"""A release whose parameters may have been chosen by `tune` says so: by account, by files, by the job file that `tune` wrote."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml

from dp_pipelines.jobs.run import looks
from dp_pipelines.jobs.run.looks import Look
from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from tests.helpers import ledgers
from tests.helpers.extension_folders import needs
from tests.jobs.conftest import Said, Shop, purchases

pytestmark = needs("tune")

Call = Callable[..., Said]

CHOSEN = "its parameters were chosen by looking at raw rows with `tune` on {}: that choice is not covered by epsilon"
GOLDEN = Path(__file__).parents[2] / "ledger" / "golden" / "ledger_0_1_0.sqlite"


def tuned(call: Call, shop: Shop, *more: object) -> Path:
    """What was suggested."""
    said = call(
        "tune", shop.job, "--output", shop.folder / "tuning", "--grid", "bounds.max_partitions_contributed=1,2", *more
    )
    assert said.code == 0, said.err
    (suggested,) = (shop.folder / "tuning").glob("*suggested.yaml")
    return suggested


def released(call: Call, shop: Shop, name: str, *more: object, job: Path | None = None) -> tuple[Said, dict[str, Any]]:
    """What a run says, and its manifest."""
    said = call("run", job or shop.job, "--output", shop.folder / name, *more)
    assert said.code == 0, said.err
    return said, json.loads((shop.folder / name / "manifest.json").read_text())


def day_of_the_look(shop: Shop) -> str:
    (look,) = Ledger.open(str(shop.folder / DEFAULT_NAME)).state.tunings
    return look.time[:10]


def test_each_release_after_a_look_says_so_everywhere(shop: Shop, call: Call) -> None:
    tuned(call, shop)
    said, manifest = released(call, shop, "out")
    words = CHOSEN.format(day_of_the_look(shop))
    assert manifest["tuned"] == [{"date": day_of_the_look(shop), "stage": "weekly", "words": words}]
    assert manifest["not_covered"][-1] == words
    assert f"tuned      {words}\n" in said.out
    page = (shop.folder / "out" / "report.html").read_text()
    assert f"<strong>Tuned on the raw rows.</strong> About this release: {words}." in page
    assert f"<li>{words}</li>" in page
    assert (
        json.loads(call("run", shop.job, "--output", shop.folder / "out", "--json").out)["tuned"] == manifest["tuned"]
    )


def test_a_release_before_the_look_stays_what_it_was(shop: Shop, call: Call) -> None:
    said, manifest = released(call, shop, "out")
    tuned(call, shop)
    again, same = released(call, shop, "again")
    assert "tuned" not in manifest
    assert same == manifest
    assert "Tuned on the raw rows" not in (shop.folder / "again" / "report.html").read_text()
    assert "tuned" not in said.out + again.out


def test_a_plan_that_was_frozen_before_the_look_was_not_chosen_by_it(shop: Shop, call: Call) -> None:
    shop.write(budget={"epsilon": 8.0, "delta": 1e-5, "runs": 3})
    _, before = released(call, shop, "w1", "--run-id", "w1")
    tuned(call, shop)
    _, after = released(call, shop, "w2", "--run-id", "w2")
    assert "tuned" not in before
    (look,) = after["tuned"]
    assert look["words"].startswith(
        f"raw rows were looked at with `tune` on {day_of_the_look(shop)}, after the plan was"
    )
    shop.write(budget={"epsilon": 4.0, "delta": 1e-5, "runs": 3})
    _, another = released(call, shop, "w3", "--run-id", "w3")
    assert another["tuned"][0]["words"] == CHOSEN.format(day_of_the_look(shop))


def test_a_look_counts_for_the_files_whatever_the_dataset_is_called(shop: Shop, call: Call) -> None:
    shop.without_ledger()
    tuned(call, shop)
    pa.parquet.write_table(purchases(7), shop.folder / "others.parquet")
    shop.write(dataset="strangers", source={"parquet": "others.parquet"})
    _, strangers = released(call, shop, "strangers")
    assert "tuned" not in strangers
    shop.write(dataset="copied", source={"parquet": "d*/part-0.parquet"})
    _, copied = released(call, shop, "copied")
    assert copied["tuned"][0]["words"] == CHOSEN.format(day_of_the_look(shop))


@pytest.mark.parametrize("looked", [(), ("--ledger", "none")])
def test_a_suggested_job_carries_its_mark_to_a_run_without_a_ledger(
    shop: Shop, call: Call, looked: tuple[str, ...]
) -> None:
    shop.job.write_text("# ours\n" + shop.job.read_text())
    suggested = tuned(call, shop, *looked)
    assert "# ours" in suggested.read_text()
    (mark,) = yaml.safe_load(suggested.read_text())["tuned"]
    said, manifest = released(call, shop, "out", "--ledger", "none", job=suggested)
    assert manifest["tuned"] == [mark | {"words": CHOSEN.format(mark["date"])}]
    assert CHOSEN.format(mark["date"]) in said.out
    assert "Tuned on the raw rows" in (shop.folder / "out" / "report.html").read_text()
    assert "tuned" not in released(call, shop, "own", "--ledger", "none")[1]


def test_the_ledger_and_the_job_file_name_one_look_once(shop: Shop, call: Call) -> None:
    suggested = tuned(call, shop)
    _, manifest = released(call, shop, "out", "--ledger", shop.folder / DEFAULT_NAME, job=suggested)
    assert len(manifest["tuned"]) == 1


@pytest.mark.parametrize("way", ["--synthetic", "--sample"])
def test_rows_that_are_made_up_or_public_leave_no_mark(shop: Shop, call: Call, way: str) -> None:
    pa.parquet.write_table(purchases(77), shop.folder / "sample.parquet")
    suggested = tuned(call, shop, way, *([shop.folder / "sample.parquet"] if way == "--sample" else []))
    assert "tuned" not in yaml.safe_load(suggested.read_text())
    for name, job, ledger in (("own", shop.job, shop.folder / DEFAULT_NAME), ("suggested", suggested, "none")):
        said, manifest = released(call, shop, name, "--ledger", ledger, job=job)
        assert "tuned" not in manifest
        assert "raw rows" not in said.out + (shop.folder / name / "report.html").read_text()


def test_a_look_between_two_attempts_marks_neither(tmp_path: Path) -> None:
    """What a run says is fixed when it is admitted, whichever attempt is the one that is seen."""
    ledger = ledgers.with_account(str(tmp_path / "l.sqlite"))
    run = ledgers.admit(ledger, "r")
    ledger.note_tuning(ledgers.ACCOUNT, stage="weekly", configurations=1, content="c", grid="g")
    again = ledgers.admit(ledger, "r")
    assert looks.of_ledger(ledger, again, []) == looks.of_ledger(ledger, run, []) == []
    assert len(looks.of_ledger(ledger, ledgers.admit(ledger, "later", asked="other"), [])) == 1


def test_a_look_that_version_0_1_0_noted_counts_by_its_account(tmp_path: Path) -> None:
    shutil.copy(GOLDEN, tmp_path / "l.sqlite")
    ledger = Ledger.open(str(tmp_path / "l.sqlite"))
    first, second = (ledger.state.runs["grocery", name] for name in ("2026-W01", "2026-W02"))
    assert looks.of_ledger(ledger, first, ["/data/a.parquet"]) == []
    assert looks.of_ledger(ledger, second, []) == [Look(date="2026-01-05", stage="weekly", after_plan=True)]


def test_a_look_before_and_after_the_plan_is_one_before_it() -> None:
    before, after = Look(date="2026-01-05", stage="s"), Look(date="2026-01-05", stage="s", after_plan=True)
    other = Look(date="2026-01-04", stage="s", after_plan=True)
    assert looks.marks([after, before, before, other]) == [other, before]
