"""A stage whose teachers vote, in a job file: every form of it, planned, run, killed and resumed, refused where it is wrong.

In: the shop and a public table. Out: exit codes, folders, ledgers. Holds: runs are real, kills too; the forms are counted against
the models of the job file. Not covered: votes and their noise (`tests/training/teachers`), how well models predict
(`benchmarks/pate.py`).
"""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from dp_pipelines.jobs.spec.train_models import PateStage
from dp_pipelines.ledger import events
from dp_pipelines.training import artefact
from tests.jobs.conftest import Said, Shop
from tests.jobs.run.test_ledgered_run import kill_at_draw, opened
from tests.jobs.run.test_model_training import files_below
from tests.jobs.run.test_training_forms import DEAR, LINE, PRICE, PRODUCT, declared, said

pytest.importorskip("numba")

Call = Callable[..., Said]
PUBLIC = {"parquet": "unlabelled.parquet"}
ROWS = 60
FOUND = {"kind": "category", "most": 3}


def model(**changes: object) -> dict[str, Any]:
    """A stage whose teachers vote, as small as one can be."""
    base = {
        "kind": "pate", "public": PUBLIC, "label": DEAR, "unit_columns": {"dear": "price > 10"}, "features": {"store": LINE},
        "fit": {"teachers": 40, "answers": 10},
    }  # fmt: skip
    return {**base, **changes}


CASES: dict[str, dict[str, Any]] = {
    "two classes": model(),
    "every key": model(
        title="Two classes", description="Taught by teachers.",
        fit={"teachers": 30, "answers": 4, "asked": 50, "threshold": 12, "steps": 3, "learning_rate": 0.5},
        model={"kind": "linear"}, share=2, whiten=False, held_out=0.3, max_examples_per_unit=3, max_rows_per_unit=5,
        where="price >= 0", evaluation={"cells": 8, "by": {"column": "product", "groups": ["p0"]}},
    ),
    "classes, CSV": model(label=PRODUCT, public={"csv": "unlabelled.csv", "types": {"store": "int64"}}),
    "a network": model(model={"kind": "mlp", "hidden": [4, 2]}, label=PRODUCT),
    "features that are found": model(
        features={
            "product": {"kind": "category", "most": 3},
            "store": {"kind": "number", "min_value": 0, "max_value": 10, "bins": 3},
        },
        pairs=[["product", "store"]],
    ),
}  # fmt: skip


@pytest.fixture
def shop(shop: Shop) -> Shop:
    """The shop, with a public table beside its job."""
    products = [f"p{number % 4}" for number in range(ROWS)]
    table = pa.table({"store": pa.array(np.arange(ROWS) % 7, pa.int64()), "product": products, "unread": products})
    pa.parquet.write_table(table, shop.folder / "unlabelled.parquet")
    pa.csv.write_csv(table, shop.folder / "unlabelled.csv")
    return shop


def test_the_cases_say_everything_that_such_a_stage_can_say() -> None:
    """What features, labels and evaluations can say is counted in the forms of train stages, files in those of sources."""
    told = {form for case in CASES.values() for form in said(PateStage.model_validate(case))}
    own = {form for form in declared(PateStage) if form[0] in ("TeachersModel", "PateStage")}
    missing = {form for form in own - told if form[1] not in ("features", "evaluation")}
    assert not missing, f"add a case that says {sorted(missing)}"


@pytest.mark.parametrize("case", CASES)
def test_every_form_runs_from_the_job_file_to_a_model_that_can_be_read(shop: Shop, call: Call, case: str) -> None:
    shop.write(stages={"model": CASES[case]})
    out = shop.folder / "out"
    ended = call("run", shop.job, "--output", out)
    assert (ended.code, ended.err) == (0, "")
    content, fit = json.loads((out / "model" / "model.json").read_text()), CASES[case]["fit"]
    answered, answer, (asked,) = (content["path"][name] for name in ("answered", "answer", "asked"))
    assert len(answered) == len(answer) <= fit["answers"]
    assert asked <= fit.get("asked", 2 * fit["answers"])
    found = artefact.load(out / "model")
    assert found.task.kind == "pate"
    assert found.task.steps.teachers == fit["teachers"]
    predicted = found.predict(pa.parquet.read_table(shop.folder / "unlabelled.parquet"))
    assert predicted.num_rows == ROWS
    page = (out / "report.html").read_text(encoding="utf-8")
    assert f"votes of {fit['teachers']} teachers" in page
    assert "noisy gradient steps" not in page
    scores = shop.folder / "scores.parquet"
    assert call("predict", out / "model", shop.folder / "data" / "part-0.parquet", "--output", scores).code == 0


def test_plan_says_what_votes_cost_and_when_they_are_right(shop: Shop, call: Call) -> None:
    shop.write(
        stages={"model": model(fit={"teachers": 500, "answers": 20, "asked": 45, "threshold": 290})},
        expect={"units": 300},
    )
    plan = json.loads(call("plan", shop.job, "--json").out)
    stages = {stage["name"]: stage for stage in plan["stages"]}
    assert list(stages) == ["model.tests", "model", "model.evaluation"]
    votes = stages["model"]["votes"]
    assert (votes["teachers"], votes["answers"], votes["asked"], votes["threshold"]) == (500, 20, 45, 290)
    answers, tests = (record for record in plan["mechanisms"] if record["stage"] in ("model.tests", "model"))
    for record, times, stddev, moved in ((tests, 45, "stddev_of_tests", 1), (answers, 20, "stddev_of_answers", 2)):
        mu_squared = int(record["l2_squared"]) / float(eval(record["scale"])) ** 2
        assert mu_squared == pytest.approx(times * moved / votes[stddev] ** 2, rel=1e-6)
    assert votes["right_from_majority"] == pytest.approx(
        (500 + 1.645 * 2**0.5 * votes["stddev_of_answers"]) / 2, rel=1e-3
    )
    words = " ".join(call("plan", shop.job).out.split())
    assert "45 tests of whether 290 of 500 teachers agree" in words
    assert "at most 20 answers" in words
    assert f"{np.ceil(votes['right_from_majority']):.0f} of 500 teachers agree" in words
    assert "rarely worth it" in words
    assert "more teachers than units to learn from: 500 for about 240" in words


def frozen(shop: Shop) -> list[str]:
    """What the ledger keeps, in its order."""
    return [str(event.content["name"]) for event in opened(shop).history if event.kind == events.DRAW_FROZEN]


@pytest.mark.parametrize("kept", ["model.public", "model"])
def test_kill_9_before_and_after_the_answers_goes_on_with_what_was_kept(shop: Shop, call: Call, kept: str) -> None:
    shop.write(stages={"model": model()})
    command = ["run", str(shop.job), "--output", str(shop.folder / "out"), "--run-id", "one"]
    order = ["model.salt", "model.public", "model"]
    kill_at_draw(shop, command, order.index(kept) + 1)
    assert frozen(shop) == order[: order.index(kept) + 1]
    before = {name: opened(shop).drawn(opened(shop).run("shop", "one"), name) for name in frozen(shop)}
    assert call(*command).code == 0
    assert frozen(shop) == order
    ledger = opened(shop)
    run = ledger.run("shop", "one")
    assert {name: ledger.drawn(run, name) for name in before} == before
    told = np.frombuffer(ledger.drawn(run, "model") or b"", "<i8")
    path = json.loads((shop.folder / "out" / "model" / "model.json").read_text())["path"]
    assert [path["asked"][0], *np.stack([path["answered"], path["answer"]], axis=1).ravel()] == told.tolist()
    files = files_below(shop.folder / "out")
    assert call("run", shop.job, "--output", shop.folder / "again", "--run-id", "one").code == 0
    assert files_below(shop.folder / "again") == files


def test_answers_are_never_applied_to_another_public_table(shop: Shop, call: Call) -> None:
    shop.write(stages={"model": model()})
    command = ["run", str(shop.job), "--output", str(shop.folder / "out"), "--run-id", "one"]
    kill_at_draw(shop, command, 3)
    path = shop.folder / "unlabelled.parquet"
    whole = path.read_bytes()
    pa.parquet.write_table(pa.parquet.read_table(path).slice(1), path)
    ended = call(*command)
    assert ended.code == 1
    assert "has changed since this run began" in ended.err
    assert not (shop.folder / "out").exists()
    path.write_bytes(whole)
    assert call(*command).code == 0


def test_a_second_run_is_refused_by_the_budget(shop: Shop, call: Call) -> None:
    shop.write(stages={"model": model()})
    shop.without_ledger()
    assert call("run", shop.job, "--output", shop.folder / "out").code == 0
    again = call("run", shop.job, "--output", shop.folder / "more", "--run-id", "further")
    assert again.code == 3
    assert not (shop.folder / "more").exists()


def test_nothing_that_is_told_depends_on_how_teachers_vote(shop: Shop, call: Call) -> None:
    """Two runs answer other examples: what they tell on the way, and the names of files, are the same."""
    shop.write(stages={"model": model()})
    seen = []
    for name in ("one", "two"):
        shop.without_ledger()
        ended = call("run", shop.job, "--output", shop.folder / name, "--run-id", name)
        assert ended.code == 0
        assert ended.err.replace(name, "").startswith("note: opens the account")
        seen.append(set(files_below(shop.folder / name)))
    assert seen[0] == seen[1]


@pytest.mark.parametrize(
    ("changes", "place", "words"),
    [
        ({"label": PRICE, "unit_columns": {}}, "label", "binary"),
        ({"fit": {"teachers": 1}}, "fit.teachers", "must be a whole number from 2"),
        ({"fit": {"answers": 0}}, "fit.answers", "must be a whole number from 1"),
        ({"fit": {"answers": 30, "asked": 29}}, "fit.asked", "fewer than the 30 answers that are paid for"),
        ({"fit": {"teachers": 10, "threshold": 11}}, "fit.threshold", "more than the 10 teachers"),
        ({"fit": {"candidates": [{"steps": 2}, {"steps": 3}]}}, "fit.candidates", "unknown key"),
        ({"fit": {"sampling_rate": 0.5}}, "fit.sampling_rate", "unknown key"),
        ({"fit": {"l2": 0.1}}, "fit.l2", "unknown key"),
        ({"fit": {"rounds": 3}}, "fit.rounds", "unknown key"),
        ({"model": {"kind": "jax", "name": "a:b", "parameters": 3}}, "model", ""),
        ({"public": None}, "public", ""),
        ({"public": {"parquet": "absent.parquet"}}, "public", "matches no file"),
        ({"public": {"parquet": "unlabelled.parquet", "csv": "a.csv"}}, "public", "parquet"),
        ({"public": {"parquet": "job.yaml"}}, "public", "cannot be read as Parquet"),
        ({"fit": {"answers": 31}}, "public", "has 60 rows, fewer than the 62 examples on which teachers vote"),
        ({"features": {"store": LINE, "note": {"kind": "category", "categories": ["x"]}}}, "public", "'note'"),
        ({"features": {"product": {**LINE, "column": "product"}}}, "features", "no number"),
        ({"public": {"parquet": "data/../*/part-1.parquet"}}, "public", "is a file of the source too"),
        (
            {"unit_columns": {"dear": "price > 10", "unread": "store + 1"}, "features": {"unread": FOUND}},
            "features.unread",
            "whole numbers in the rows of units and text in the public table",
        ),
    ],
)
def test_wrong_settings_exit_2_at_their_line_before_anything_is_charged(
    shop: Shop, call: Call, changes: dict[str, Any], place: str, words: str
) -> None:
    shop.write(stages={"model": {key: value for key, value in model(**changes).items() if value is not None}})
    history = len(opened(shop).history)
    for command in (("plan",), ("run", "--output", shop.folder / "out")):
        ended = call(command[0], shop.job, *command[1:])
        assert ended.code == 2
        assert f"stages.model.{place}" in ended.err
        assert words in ended.err
        assert "job.yaml:" in ended.err
    assert len(opened(shop).history) == history
