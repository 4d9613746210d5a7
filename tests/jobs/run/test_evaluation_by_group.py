"""A model evaluated by groups in a job file: planned, run, told of, used without the column; and what is refused.

In: the shop, with a column that a model can learn. Out: folders, messages. Holds: runs are real; what is refused costs nothing.
Not covered: how counts are cut into groups (`tests/training/test_evaluation_groups.py`).
"""

import json
import math
import pathlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from dp_pipelines.training import artefact
from tests.helpers.extension_folders import needs
from tests.jobs.conftest import Said, Shop
from tests.jobs.run.test_ledgered_run import opened
from tests.jobs.run.test_model_training import learnable, model

Call = Callable[..., Said]
BY = {"column": "kind", "groups": ["x", "30"]}
FEATURES = {"store": {"kind": "number", "min_value": 0, "max_value": 10, "edges": [1.5, 2.5]}}


def job(shop: Shop, by: object = BY, **changes: object) -> pathlib.Path:
    """The shop's job with a model that is evaluated by a column which is no feature."""
    asked = model(features=FEATURES, evaluation={"cells": 4, "by": by}, **changes)
    return shop.write(columns={"kind": "upper(note)", "other": "price * 2"}, stages={"dear": asked})


@pytest.mark.parametrize("runner", ["direct", "local"])
def test_a_run_says_how_good_the_model_is_for_each_group(shop: Shop, call: Call, runner: str) -> None:
    job(shop, {"column": "kind", "groups": ["X", "30"]})
    learnable(shop)
    out = shop.folder / "out"
    said = call("run", shop.job, "--output", out, "--runner", runner)
    assert (said.code, said.err) == (0, "")
    found = json.loads((out / "dear" / "evaluation.json").read_text(), parse_constant=pytest.fail)
    assert [group["group"] for group in found["by"]["groups"]] == ["X", "30", None]
    assert found["stddev"] == pytest.approx(math.sqrt(3) * found["by"]["stddev"])
    counts = [group["examples"]["value"] for group in found["by"]["groups"]]
    assert found["examples"]["value"] == pytest.approx(sum(counts))
    # A quarter of the rows has each of the values; the others have another one, or none. About 60, 60 and 100 of the units that a
    # hash holds out have them: half of 60 is more than six standard deviations below 100, a chance below 1e-9.
    assert counts[2] > 0.5 * counts[0] > 0
    assert all(group["measures"]["accuracy"]["value"] > 0.7 for group in found["by"]["groups"])
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["models"]["dear"]["evaluated_by"] == "kind: X, 30; another or missing"
    page, told = (out / "report.html").read_text(), " ".join(said.out.split())
    for words in ("Held-out examples by", "another or missing", "within them may be chance"):
        assert words in page
    for words in ("kind X: AUC", "kind another or missing: AUC", "within them may be chance"):
        assert words in told


def test_a_plan_tells_the_price(shop: Shop, call: Call) -> None:
    job(shop)
    told = " ".join(call("plan", shop.job).out.split())
    assert "evaluated by kind: x, 30; another or missing: epsilon is the same" in told
    assert "1.73 times as much" in told
    (stage,) = (s for s in json.loads(call("plan", shop.job, "--json").out)["stages"] if s["name"] == "dear")
    price = stage["evaluation_by"]
    assert price["groups"] == 3
    assert price["stddev_overall"] == pytest.approx(math.sqrt(3) * price["stddev"])


@needs("export")
def test_the_model_is_used_and_exported_without_the_column(shop: Shop, call: Call) -> None:
    shop.write(stages={"dear": model(features=FEATURES, evaluation={"by": {"column": "note", "groups": ["7"]}})})
    out = shop.folder / "out"
    assert call("run", shop.job, "--output", out).code == 0
    assert artefact.load(out / "dear").task.evaluation_by is not None
    rows = pa.parquet.read_table(shop.folder / "data" / "part-0.parquet").drop_columns(["note"])
    pa.parquet.write_table(rows, shop.folder / "new.parquet")
    predicted = call("predict", out / "dear", shop.folder / "new.parquet", "--output", shop.folder / "scores.parquet")
    assert (predicted.code, predicted.out.split()[0]) == (0, str(rows.num_rows))
    exported = call("export", out / "dear", "--format", "sql", "--output", shop.folder / "model.sql")
    assert exported.code == 0
    assert "note" not in (shop.folder / "model.sql").read_text()


def test_made_up_rows_have_the_groups(shop: Shop, call: Call) -> None:
    shop.write(stages={"dear": model(features=FEATURES, evaluation={"by": {"column": "note", "groups": ["7"]}})})
    out = shop.folder / "out"
    assert call("run", shop.job, "--output", out, "--synthetic").code == 0
    found = json.loads((out / "dear" / "evaluation.json").read_text())["by"]["groups"]
    assert found[0]["examples"]["value"] > 100 > abs(found[1]["examples"]["value"])


@pytest.mark.parametrize(
    ("by", "words"),
    [
        ({"column": "nothing", "groups": ["x"]}, "names column 'nothing', which does not exist"),
        ({"column": "other", "groups": [1]}, "which is no category"),
        ({"column": "paid_at", "groups": ["2026-01-01"]}, "which is no category"),
        ({"column": "kind", "groups": [1]}, "a declared value is none of them"),
        ({"column": "store", "groups": ["x"]}, "a declared value is none of them"),
        ({"column": "kind", "groups": ["x", "x"]}, "different"),
        ({"column": "kind", "groups": []}, "1 to 20"),
        ({"column": "kind", "groups": [str(number) for number in range(21)]}, "1 to 20"),
        ({"column": "kind", "groups": [1.5]}, "texts, whole numbers, truths or dates"),
        ({"column": "customer", "groups": [1]}, "part of the privacy unit"),
        ({"column": "kind"}, "groups"),
        ({"groups": ["x"]}, "column"),
        ({"column": "kind", "groups": ["x"], "others": True}, "others"),
        ("kind", "by"),
    ],
)
def test_wrong_groups_are_refused_before_anything_is_charged(
    shop: Shop, call: Call, by: dict[str, Any], words: str
) -> None:
    job(shop, by)
    before = len(opened(shop).history)
    for command in (("plan", shop.job), ("run", shop.job, "--output", shop.folder / "out")):
        ended = call(*command)
        assert ended.code == 2
        assert words in " ".join(ended.err.split())
        assert "job.yaml:" in ended.err
    assert len(opened(shop).history) == before
    assert not (shop.folder / "out").exists()
