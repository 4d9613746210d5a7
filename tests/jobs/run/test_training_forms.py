"""Every form of a train stage that a job file can say, run from the command line to the published model.

In: the shop, one job for each case. Out: exit codes, files, models that predict. Holds: the cases are counted against the models
of the job file themselves: a key, a kind, a truth value or a form that somebody adds without a case fails here. Not covered: odd
rows (`tests/training/test_odd_inputs.py`) and how well models predict.
"""

import json
import math
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pydantic
import pytest

from dp_pipelines import RequestError
from dp_pipelines.jobs.spec.train_models import TrainStage
from dp_pipelines.training import artefact, scoring
from dp_pipelines.training.features.encoder import Encoder
from tests.jobs.conftest import Said, Shop
from tests.jobs.run.test_ledgered_run import opened

Call = Callable[..., Said]

DEAR = {"kind": "binary", "column": "dear"}
PRICE = {"kind": "number", "column": "price", "min_value": 0, "max_value": 20}
PRODUCT = {"kind": "classes", "column": "product", "classes": ["p0", "p1", "p2"]}
LINE = {"kind": "number", "min_value": 0, "max_value": 10, "bins": 1, "scaled": True}
STORE = {"store": LINE}


def model(**changes: object) -> dict[str, Any]:
    """A train stage, as small as one can be."""
    base = {"kind": "train", "label": PRICE, "features": STORE, "fit": {"steps": 3}}
    return {**base, **changes}


CASES: dict[str, dict[str, Any]] = {
    "a straight line alone": model(title="Dear orders", description="What a line says."),
    "all forms of numbers": model(
        features={
            "store": {"kind": "number", "min_value": 0, "max_value": 10},
            "three bins": {"kind": "number", "column": "price", "min_value": 0, "max_value": 20, "bins": 3},
            "bins and line": {**LINE, "column": "store", "bins": 2},
            "line": {**LINE, "column": "store"},
            "cuts": {"kind": "number", "column": "store", "min_value": 0, "max_value": 10, "edges": [1.5]},
            "cuts and line": {
                "kind": "number", "column": "store", "min_value": 0, "max_value": 10, "edges": [1.5], "scaled": True,
            },
        },
        label={**DEAR},
        unit_columns={"dear": "price > 10"},
    ),
    "both forms of categories": model(
        features={
            "product": {"kind": "category", "most": 3},
            "note": {"kind": "category", "categories": ["7", "x"]},
            "kind of store": {"kind": "category", "column": "store", "categories": [1, 2]},
        }
    ),
    "categories alone that are found": model(features={"product": {"kind": "category", "most": 3}}),
    "pairs": model(
        features={
            "product": {"kind": "category", "most": 3},
            "note": {"kind": "category", "categories": ["7", "x"]},
            "store": {**LINE, "bins": 3},
        },
        pairs=[["product", "store"], ["note", "product"]],
    ),
    "classes": model(label=PRODUCT),
    "more classes than cells": model(
        label={**PRODUCT, "classes": ["p0", "p1", "p2", "p3", "p4"]}, evaluation={"cells": 8, "weighting": "units"}
    ),
    "a named linear model": model(model={"kind": "linear"}, label=DEAR, unit_columns={"dear": "price > 10"}),
    "a network": model(model={"kind": "mlp"}, label=DEAR, unit_columns={"dear": "price > 10"}),
    "a network of two layers": model(model={"kind": "mlp", "hidden": [4, 2]}, label=PRODUCT),
    "a network for numbers": model(model={"kind": "mlp", "hidden": [4]}, whiten=False),
    "features as they are": model(whiten=False, label=DEAR, unit_columns={"dear": "price > 10"}),
    "every key of the fit": model(
        fit={
            "steps": 2, "sampling_rate": 0.5, "clip_norm": 2.0, "learning_rate": 0.1, "momentum": 0.5, "average": 1.0,
            "max_noise_multiplier": 1e6,
        }
    ),
    "what costs nothing of the fit": model(
        fit={"steps": 2, "l2": 0.1, "class_weights": [1, 3]}, label=DEAR, unit_columns={"dear": "price > 10"}
    ),
    "a model of its own": model(
        model={
            "kind": "jax", "name": "tests.training.kernels.test_own_gradients:logistic", "parameters": 4, "microbatch": 8,
        }
    ),
    "candidates": model(fit={"steps": 2, "candidates": [{"learning_rate": 1}, {"learning_rate": 4}]}),
    "no momentum and no average": model(fit={"steps": 2, "momentum": 0, "average": 0}),
    "groups": model(evaluation={"by": {"column": "product", "groups": ["p0", "p1"]}}),
    "each unit counts once": model(evaluation={"weighting": "units"}),
    "examples count": model(evaluation={"weighting": "examples"}),
    "every other key": model(
        share=0.5, max_examples_per_unit=1, whiten=True, held_out=0.5,
        evaluation={"cells": 2, "weighting": "examples", "max_examples_per_unit": 1},
        unit_columns={"dear": "price > 10"}, where="price >= 0", max_rows_per_unit=2, label=DEAR,
    ),
}  # fmt: skip


def declared(of: type[pydantic.BaseModel]) -> Iterator[tuple[str, str, str]]:
    """What can be said of a model of the job file and of those below it: key by key, form by form."""
    for name, field in of.model_fields.items():
        yield from _forms(of.__name__, name, field.annotation)


def _forms(owner: str, name: str, annotation: Any) -> Iterator[tuple[str, str, str]]:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        yield from _forms(owner, name, arguments[0])
    elif origin in (typing.Union, types.UnionType):
        for one in arguments:
            yield from _forms(owner, name, one)
    elif origin is Literal:
        yield from ((owner, name, repr(value)) for value in arguments)
    elif origin is dict:
        yield from _forms(owner, name, arguments[1])
    elif isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        yield owner, name, annotation.__name__
        yield from declared(annotation)
    elif annotation is bool:
        yield from ((owner, name, repr(value)) for value in (True, False))
    else:
        yield owner, name, "None" if annotation is type(None) else "given"


def said(of: pydantic.BaseModel) -> Iterator[tuple[str, str, str]]:
    """What a model of a job file says, in the same words."""
    for name, field in type(of).model_fields.items():
        forms = {form for _, _, form in _forms("", name, field.annotation)}
        value = getattr(of, name)
        for one in value.values() if isinstance(value, dict) and value else [value]:
            if isinstance(one, pydantic.BaseModel):
                yield type(of).__name__, name, type(one).__name__
                yield from said(one)
            elif one is None or repr(one) in forms:
                yield type(of).__name__, name, repr(one)
            elif name in of.model_fields_set:
                yield type(of).__name__, name, "given"


def test_the_cases_say_everything_that_a_train_stage_can_say() -> None:
    told = {form for case in CASES.values() for form in said(TrainStage.model_validate(case))}
    missing = set(declared(TrainStage)) - told
    assert not missing, f"add a case that says {sorted(missing)}"


def test_a_form_without_a_case_is_missed() -> None:
    class Later(TrainStage):
        smooth: bool = False
        penalty: float | None = None

    later = [Later.model_validate(case) for case in CASES.values()]
    missing = set(declared(Later)) - {form for stage in later for form in said(stage)}
    assert missing == {("Later", "smooth", "True"), ("Later", "penalty", "given")}


def test_every_case_names_its_forms_once_so_that_no_case_can_go_unseen() -> None:
    """Without the cases of one kind of model or label something is missing."""
    for kind in ("Network", "Linear", "ClassTarget", "NumberTarget", "BinaryTarget", "CategoryFeature"):
        stages = [TrainStage.model_validate(case) for case in CASES.values()]
        rest = {form for stage in stages if kind not in {f for _, _, f in said(stage)} for form in said(stage)}
        assert set(declared(TrainStage)) - rest, kind


@pytest.mark.parametrize("case", CASES)
def test_every_form_runs_from_the_job_file_to_a_model_that_predicts(shop: Shop, call: Call, case: str) -> None:
    shop.write(stages={"model": CASES[case]})
    out = shop.folder / "out"
    ended = call("run", shop.job, "--output", out)
    assert (ended.code, ended.err) == (0, "")
    path = json.loads((out / "model" / "model.json").read_text())["path"]["gradient_norm"]
    assert len(path) == CASES[case]["fit"]["steps"]
    assert all(math.isfinite(norm) for norm in path)
    json.loads((out / "model" / "evaluation.json").read_text(), parse_constant=pytest.fail)
    found = artefact.load(out / "model")
    rows = pa.parquet.read_table(shop.folder / "data" / "part-0.parquet").slice(0, 5)
    own = CASES[case].get("model", {})
    predicted = found.predict(rows, jax_model=scoring.own_code(found.task, own.get("name"), "model"))
    assert predicted.num_rows == 5
    assert np.isfinite(predicted.column(0).to_numpy() if "prediction" not in predicted.column_names else 0.0).all()


def test_one_bin_that_says_nothing_of_its_value_is_refused_with_a_hint(shop: Shop, call: Call) -> None:
    shop.write(stages={"model": model(features={"store": {**LINE, "scaled": False}})})
    before = len(opened(shop).history)
    for command in (("plan",), ("run", "--output", shop.folder / "out")):
        ended = call(command[0], shop.job, *command[1:])
        assert ended.code == 2
        assert "only whether there is a value; write scaled: true for a straight line" in ended.err
        assert "job.yaml:" in ended.err
    assert len(opened(shop).history) == before


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ([["store", "stores"]], "pairs.0: names 'stores', which is no feature; did you mean 'store'?"),
        ([["store", "note"], ["note", "store"]], "pairs.1: is a pair that stands there already"),
        ([["store", "note", "note"]], "pairs.0: must be two names of features"),
        ([["store"]], "pairs.0: must be two names of features"),
        ([["store", "store"]], "pairs.0: names 'store' twice"),
        (["store"], "pairs.0: must be"),
    ],
)
def test_pairs_that_are_none_are_refused_at_their_line_before_anything_is_read(
    shop: Shop, call: Call, pairs: Any, words: str
) -> None:
    features = {"store": {**LINE, "bins": 2}, "note": {"kind": "category", "categories": ["7"]}}
    shop.write(stages={"model": model(features=features, pairs=pairs)})
    before = len(opened(shop).history)
    for command in (("plan",), ("run", "--output", shop.folder / "out")):
        ended = call(command[0], shop.job, *command[1:])
        assert ended.code == 2
        assert words in ended.err
        assert "job.yaml:" in ended.err
    assert len(opened(shop).history) == before
    shop.write(stages={"model": model(features=features, pairs=pairs)}, source={"parquet": "later/*.parquet"})
    assert words in call("plan", shop.job).err


def test_plan_says_the_columns_of_each_pair(shop: Shop, call: Call) -> None:
    features = {"store": {**LINE, "bins": 2}, "note": {"kind": "category", "most": 4}}
    shop.write(stages={"model": model(features=features, pairs=[["store", "note"]])})
    assert "of 25 columns, pairs have: note and store (15 columns)" in call("plan", shop.job).out
    described = json.loads(call("plan", shop.job, "--json").out)
    (stage,) = (stage for stage in described["stages"] if stage["name"] == "model")
    assert stage["pairs"] == [{"features": ["note", "store"], "columns": 15}]
    assert stage["features"] == 1 + 4 + 5 + 15


@pytest.mark.parametrize("broken", ["__post_init__", "encode", "labels"])
def test_what_the_encoder_refuses_is_refused_before_anything_is_charged(
    shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """A fault of the encoder that public facts show, planted into each of its steps, costs nobody a budget."""

    def refuse(*given: object) -> None:
        raise RequestError(field="features.store", message="is a planted fault", hint="take it away")

    monkeypatch.setattr(Encoder, broken, refuse)
    shop.write(stages={"model": CASES["a straight line alone"]})
    before = len(opened(shop).history)
    for command in (("plan",), ("run", "--output", shop.folder / "out")):
        ended = call(command[0], shop.job, *command[1:])
        assert ended.code == 2
        assert "is a planted fault; take it away" in ended.err
    assert len(opened(shop).history) == before
    assert not (shop.folder / "out").exists()


def test_the_encoder_is_tried_where_the_files_are_not_there_yet(
    shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: object) -> None:
        raise RequestError(field="features.store", message="is a planted fault")

    monkeypatch.setattr(Encoder, "__post_init__", refuse)
    shop.write(stages={"model": model()}, source={"parquet": "later/*.parquet"})
    assert call("plan", shop.job).code == 2


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ({"kind": "binary", "column": "store"}, "1 and true count as true, 0 and false as false; a row with any other"),
        (PRODUCT, "one of the 3 declared classes; a row with any other value, or none, is left out"),
        (PRICE, "a number from 0 to 20; values outside count as its ends; a row without one is left out"),
    ],
)
def test_how_values_of_a_label_count_is_said_by_plan_manifest_and_report(
    shop: Shop, call: Call, label: dict[str, Any], words: str
) -> None:
    features = {"note": {"kind": "category", "categories": ["7"]}}
    shop.write(stages={"model": model(label=label, features=features, fit={"steps": 1})})
    (stage,) = (s for s in json.loads(call("plan", shop.job, "--json").out)["stages"] if s["name"] == "model")
    assert stage["label"].startswith(f"{label['column']}: {words}")
    assert words in " ".join(call("plan", shop.job).out.split())
    assert call("run", shop.job, "--output", shop.folder / "out").code == 0
    assert json.loads((shop.folder / "out" / "manifest.json").read_text())["models"] == {
        "model": {"label": stage["label"], "weighting": stage["weighting"]}
    }
    assert words in (shop.folder / "out" / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("column", ["product", "paid_at", "day"])
def test_a_binary_label_of_text_or_time_is_refused_by_its_type(shop: Shop, call: Call, column: str) -> None:
    shop.write(
        columns={"day": "CAST(paid_at AS DATE)"}, stages={"model": model(label={"kind": "binary", "column": column})}
    )
    ended = call("plan", shop.job)
    assert ended.code == 2
    assert "which is neither true nor false" in ended.err


def test_other_whole_numbers_than_0_and_1_are_no_examples(shop: Shop, call: Call) -> None:
    """As the plan says of a binary label: stores 2 and 3 count for nothing, neither as true nor as false."""
    for path in (shop.folder / "data").iterdir():
        rows = pa.parquet.read_table(path)
        few = np.where(rows.column("store").to_numpy() == 1, np.arange(len(rows)) % 2, rows.column("store").to_numpy())
        place = rows.column_names.index("store")
        pa.parquet.write_table(rows.set_column(place, "store", pa.array(few, pa.int32())), path)
    shop.write(
        budget={"epsilon": 39.0, "delta": 1e-3},
        stages={
            "model": model(
                label={"kind": "binary", "column": "store"},
                features={"note": {"kind": "category", "categories": ["7"]}},
                held_out=0.5, max_examples_per_unit=64,
                evaluation={"cells": 4, "weighting": "examples", "max_examples_per_unit": 64},
            )
        },
    )  # fmt: skip
    assert call("run", shop.job, "--output", shop.folder / "out").code == 0
    examples = json.loads((shop.folder / "out" / "model" / "evaluation.json").read_text())["examples"]
    # Of 8,000 rows a third has store 1, and half of the units are held out.
    assert abs(examples["value"] - 8000 / 6) < 400 + 8 * examples["noise_stddev"]
