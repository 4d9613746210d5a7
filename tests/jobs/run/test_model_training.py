"""A train stage in a job file: planned with everything else, trained from the pipeline's examples, killed and resumed.

In: the shop, with a column that a model can learn. Out: folders, ledgers, messages. Holds: runs are real, kills too. Not covered:
what a step does (`tests/training`) and how well models predict (`benchmarks/training.py`).
"""

import json
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from dp_pipelines.ledger import events
from dp_pipelines.training import artefact, fit
from dp_pipelines.training.examples import bounded_examples, coded
from tests.helpers.small_disks import SmallDisk
from tests.jobs.conftest import Said, Shop, stage
from tests.jobs.run.test_ledgered_run import kill_at_draw, opened

Call = Callable[..., Said]
FILES = {"evaluation.json", "model.json", "model.safetensors", "weights.csv"}


def model(**changes: object) -> dict[str, Any]:
    """A train stage of the shop: whether a purchase is dear, from the product and what the customer bought before."""
    base: dict[str, Any] = {
        "kind": "train",
        "unit_columns": {
            "before": "count(*) OVER (ORDER BY paid_at ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)",
            "dear": "price > 10",
        },
        "where": "before >= 0",
        "label": {"kind": "binary", "column": "dear"},
        "features": {
            "before": {"kind": "number", "min_value": 0, "max_value": 20, "bins": 4},
            "store": {"kind": "number", "min_value": 0, "max_value": 10, "edges": [1.5, 2.5], "scaled": True},
            "product": {"kind": "category", "most": 5},
            "note": {"kind": "category", "categories": ["7", "30"]},
        },
        "fit": {"steps": 12},
        "max_examples_per_unit": 4,
        "evaluation": {"cells": 8, "max_examples_per_unit": 2},
    }
    return {**base, **changes}


def job(shop: Shop, **changes: object) -> pathlib.Path:
    """The shop's job with a model beside its report."""
    return shop.write(stages={"weekly": stage(), "dear": model(**changes)})


def files_below(folder: pathlib.Path) -> dict[str, bytes]:
    """All files of a folder and its folders."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def learnable(shop: Shop) -> None:
    """Let the price follow the store."""
    for path in (shop.folder / "data").iterdir():
        rows = pa.parquet.read_table(path)
        price = np.where(rows.column("store").to_numpy() == 2, 15.0, 5.0)
        pa.parquet.write_table(rows.set_column(rows.column_names.index("price"), "price", pa.array(price)), path)


def test_a_run_publishes_the_report_and_the_model_under_one_budget(shop: Shop, call: Call) -> None:
    job(shop)
    learnable(shop)
    said = call("run", shop.job, "--output", shop.folder / "out")
    assert (said.code, said.err) == (0, "")
    out = shop.folder / "out"
    assert {path.name for path in (out / "dear").iterdir()} == FILES
    manifest = json.loads((out / "manifest.json").read_text())
    assert {f"dear/{name}" for name in FILES} <= set(manifest["files"])
    stages = {record["stage"] for record in manifest["mechanisms"]}
    parts = ("", ".bins", ".vocabulary.product", ".users", ".moments", ".evaluation")
    assert stages == {"weekly", *(f"dear{part}" for part in parts)}
    assert 8 - 1e-3 < manifest["accounted"]["epsilon"] <= 8
    measures = json.loads((out / "dear" / "evaluation.json").read_text())["measures"]
    assert measures["accuracy"]["value"] > 0.9
    found = artefact.load(out / "dear").predict(
        pa.table(
            {"before": [1, 1], "store": pa.array([2, 1], pa.int32()), "product": ["p1", "p1"], "note": ["7", None]}
        )
    )
    assert found.column("probability")[0].as_py() > 0.5 > found.column("probability")[1].as_py()
    assert not [name for name in shop.left() if "staging" in name or "unfinished" in name]


def test_the_plan_shows_every_part_and_spends_the_whole_budget_on_the_dearer_group(shop: Shop, call: Call) -> None:
    job(shop)
    said = call("plan", shop.job, "--json")
    plan = json.loads(said.out)
    groups = {record["stage"]: record.get("group") for record in plan["mechanisms"]}
    assert groups["weekly"] is None
    assert groups["dear"] == groups["dear.moments"] == "training"
    assert groups["dear.evaluation"] == "held out"
    assert 8 - 1e-3 < plan["accounted"]["epsilon"] <= 8
    described = next(part for part in plan["stages"] if part["name"] == "dear")
    assert described["kind"] == "train"
    assert described["steps"] == 12
    assert described["noise_multiplier"] > 0
    assert "12 gradient steps" in call("plan", shop.job).out


def test_the_same_id_gives_the_same_model_bit_for_bit(shop: Shop, call: Call) -> None:
    job(shop)
    assert call("run", shop.job, "--output", shop.folder / "out", "--run-id", "one").code == 0
    before = files_below(shop.folder / "out")
    assert call("run", shop.job, "--output", shop.folder / "again", "--run-id", "one").code == 0
    assert files_below(shop.folder / "again") == before


@pytest.mark.slow
@pytest.mark.parametrize("which", [1, 4, 6, 9])
def test_a_run_that_is_killed_goes_on_from_what_it_had_kept(shop: Shop, call: Call, which: int) -> None:
    job(shop)
    command = ["run", str(shop.job), "--output", str(shop.folder / "out"), "--run-id", "one"]
    kill_at_draw(shop, command, which)
    kept = [event for event in opened(shop).history if event.kind == events.DRAW_FROZEN]
    assert len(kept) == which
    said = call(*command)
    assert (said.code, said.err) == (0, "")
    frozen = [str(event.content["name"]) for event in opened(shop).history if event.kind == events.DRAW_FROZEN]
    # Each draw was kept once: what was kept before the kill was not drawn again.
    assert len(frozen) == len(set(frozen)) > which
    assert frozen[-1] == "dear.step-12"
    path = json.loads((shop.folder / "out" / "dear" / "model.json").read_text())["path"]
    assert len(path["gradient_norm"]) == 12
    assert {path.name for path in (shop.folder / "out" / "dear").iterdir()} == FILES


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"label": {"kind": "binary", "column": "nothing"}}, "names column 'nothing', which does not exist"),
        ({"label": {"kind": "binary", "column": "product"}}, "product"),
        ({"label": {"kind": "binary", "column": "customer"}}, "is part of the privacy unit"),
        (
            {"features": {"when": {"kind": "number", "column": "paid_at", "min_value": 0, "max_value": 1}}},
            "is no number",
        ),
        ({"features": {"gone": {"kind": "category", "most": 3}}}, "names column 'gone', which does not exist"),
        ({"unit_columns": {"dear": "price > 10", "x": "random() OVER ()"}}, "unit_columns.x"),
        ({"where": "before"}, "where"),
        ({"held_out": 1.5}, "held_out"),
    ],
)
def test_what_public_facts_show_to_be_wrong_is_refused_before_anything_is_charged(
    shop: Shop, call: Call, changes: dict[str, Any], words: str
) -> None:
    job(shop, **changes)
    before = len(opened(shop).history)
    said = call("run", shop.job, "--output", shop.folder / "out")
    assert said.code == 2
    assert words in said.err
    assert "job.yaml:" in said.err
    assert len(opened(shop).history) == before


def test_a_budget_too_small_for_the_declared_noise_says_what_would_be_needed(shop: Shop, call: Call) -> None:
    job(shop, fit={"steps": 12, "max_noise_multiplier": 3.0})
    said = call("plan", shop.job)
    assert said.code == 3
    assert "max_noise_multiplier" in said.err
    needed = float(said.err.split("; epsilon ")[1].split()[0])
    shop.write(
        stages={"weekly": stage(), "dear": model(fit={"steps": 12, "max_noise_multiplier": 3.0})},
        budget={"epsilon": needed, "delta": 1e-5},
    )
    assert call("plan", shop.job).code == 0


def test_delta_zero_cannot_train(shop: Shop, call: Call) -> None:
    shop.write(stages={"dear": model()}, budget={"epsilon": 1.0, "delta": 0})
    said = call("plan", shop.job)
    assert said.code == 2
    assert "above 0 to train a model" in said.err


@pytest.mark.parametrize("rows", ["one class", "no example", "nulls", "one unit", "no row"])
def test_no_fact_of_the_rows_stops_or_shows_in_a_run(shop: Shop, call: Call, rows: str) -> None:
    """Steps are taken, files are there, nothing is printed: whatever the rows hold."""
    job(shop, where="price < 0" if rows == "no example" else "before >= 0")
    for path in (shop.folder / "data").iterdir():
        table = pa.parquet.read_table(path)
        if rows == "one class":
            table = table.set_column(4, "price", pa.array([1.0] * len(table)))
        elif rows == "nulls":
            for name in ("product", "store", "note"):
                place = table.column_names.index(name)
                table = table.set_column(place, name, pa.nulls(len(table), table.schema.field(name).type))
        elif rows == "one unit":
            table = table.set_column(0, "customer", pa.array([7] * len(table)))
        elif rows == "no row":
            table = table.slice(0, 0)
        pa.parquet.write_table(table, path)
    said = call("run", shop.job, "--output", shop.folder / "out")
    assert (said.code, said.err) == (0, "")
    path = json.loads((shop.folder / "out" / "dear" / "model.json").read_text())["path"]
    assert len(path["gradient_norm"]) == 12
    assert {path.name for path in (shop.folder / "out" / "dear").iterdir()} == FILES


def test_what_fails_while_training_says_nothing_of_the_rows(
    shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dp_pipelines.training import trainer

    def broken(*given: object, **options: object) -> None:
        raise ValueError("the price of customer 7 is 12.5")

    monkeypatch.setattr(trainer, "train", broken)
    job(shop)
    said = call("run", shop.job, "--output", shop.folder / "out")
    assert said.code == 1
    assert "12.5" not in said.err
    assert "training of a model failed" in said.err
    assert not (shop.folder / "out").exists()


STEPS = {
    "examples": (bounded_examples, "write"),
    "spilled rows": (bounded_examples, "spill"),
    "numbers": (coded.CodedExamples, "with_products"),
    "artefact": (fit, "write"),
}


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_a_disk_that_fills_up_while_a_model_is_made_is_told_and_mended(
    shop: Shop, call: Call, small_disk: SmallDisk, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    job(shop, fit={"steps": 12})
    owner, name = STEPS[step]
    real, done = getattr(owner, name), []

    def filled(*arguments: Any, **options: Any) -> Any:
        done.append(step)
        small_disk.fill()
        return real(*arguments, **options)

    command = ("run", shop.job, "--output", small_disk.path / "out")
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, filled)
        said = call(*command)
    assert done
    assert said.err.startswith(f"error: folder {str(small_disk.path)!r}: the disk is full; nothing was published")
    assert (said.code, said.err.count("\n"), small_disk.names()) == (1, 1, [])
    small_disk.free()
    assert call(*command).code == 0
    assert small_disk.names() == ["out"]
