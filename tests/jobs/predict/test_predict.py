"""`dp-pipelines predict`: the same preparation as in training, any number of rows, errors by file and column."""

import bz2
import collections
import dataclasses
import gzip
import json
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet
import pytest

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.predict import predict
from dp_pipelines.query.train_model import BinaryLabel, Category, JaxModel, LinearModel, Number, TrainModel
from dp_pipelines.training.artefact import Artefact
from dp_pipelines.training.description import Preparation, Statement
from dp_pipelines.training.features.encoder import Encoder
from tests.helpers.small_disks import SmallDisk
from tests.jobs.conftest import Said, Shop, purchases

Call = Callable[..., Said]

FEATURES = {
    "visits": Number(column="visits", min_value=0, max_value=10, edges=[1.5, 3.5]),
    "double": Number(column="double", min_value=0, max_value=40, edges=[10, 20, 30]),
    "product": Category(column="product", categories=["p0", "p1", "p2"]),
}
SOURCE = {
    "customer": "int64",
    "product": "string",
    "paid_at": "timestamp[us]",
    "price": "double",
    "note": "string",
}
PREPARATION = Preparation(
    source=SOURCE,
    where="price > {least}",
    columns={"double": "price * 2", "asked": "note IS NOT NULL"},
    params={"least": ("float", "1.0")},
    unit_columns={
        "visits": "count(*) OVER (ORDER BY paid_at)",
        "returns": "lead(asked) OVER (ORDER BY paid_at)",
    },
    examples_where="visits <= 8",
    max_rows_per_unit=1000,
)


def model(folder: pathlib.Path, preparation: Preparation = PREPARATION, **changed: Any) -> Artefact:
    features = changed.pop("features", FEATURES)
    kind = changed.pop("model", LinearModel())
    label = BinaryLabel(column="returns")
    task = TrainModel(privacy_unit="customer", label=label, features=features, whiten=False, model=kind)
    made = Artefact(
        task=task,
        encoder=Encoder.of(task),
        parameters=np.random.default_rng(1).normal(0, 1, task.size),
        whitening=None,
        privacy=Statement(unit="value of customer", epsilon=1.0, delta=1e-6, plan="ab"),
        preparation=preparation,
    )
    made.save(folder)
    return made


@pytest.fixture
def shop_model(tmp_path: pathlib.Path) -> Artefact:
    return model(tmp_path / "model")


def rows(tmp_path: pathlib.Path, *, drop: tuple[str, ...] = (), parts: int = 2) -> list[pa.Table]:
    (tmp_path / "rows").mkdir()
    tables = [purchases(number).drop_columns(list(drop)) for number in range(parts)]
    for number, table in enumerate(tables):
        pa.parquet.write_table(table, tmp_path / "rows" / f"part-{number}.parquet", row_group_size=700)
    return tables


def by_hand(tables: list[pa.Table], every: bool = False) -> pa.Table:
    """The examples, computed row by row in Python."""
    listed = [row for table in tables for row in table.to_pylist() if row["price"] > 1.0]
    found, same = [], collections.defaultdict(list)
    for row in listed:
        same[row["customer"]].append(row["paid_at"])
    for row in listed:
        visits = sum(other <= row["paid_at"] for other in same[row["customer"]])
        if every or visits <= 8:
            found.append({**row, "visits": visits, "double": row["price"] * 2})
    return pa.Table.from_pylist(found)


def sorted_pairs(table: pa.Table, *names: str) -> list[tuple[Any, ...]]:
    return sorted(zip(*(table.column(name).to_pylist() for name in names), strict=True))


def test_rows_are_prepared_as_for_training_without_what_only_the_label_needs(
    tmp_path: pathlib.Path, shop_model: Artefact, call: Call
) -> None:
    tables = rows(tmp_path, drop=("note", "store"))  # the label is made of notes
    said = call(
        "predict", tmp_path / "model", tmp_path / "rows/*.parquet", "--output", tmp_path / "out.parquet", "--keep",
        "visits",
    )  # fmt: skip
    assert said.code == 0, said.err
    found = pa.parquet.read_table(tmp_path / "out.parquet")
    assert found.column_names == ["customer", "visits", "probability"]
    examples = by_hand(tables)
    wanted = examples.append_column("probability", shop_model.predict(examples).column("probability"))
    ours = sorted_pairs(found, *found.column_names)
    theirs = sorted_pairs(wanted, *found.column_names)
    assert [pair[:2] for pair in ours] == [pair[:2] for pair in theirs]
    assert [pair[2] for pair in ours] == pytest.approx([pair[2] for pair in theirs], abs=1e-12)
    assert f"{found.num_rows} predictions" in said.out
    assert "the guarantee of the release does not cover predictions" in said.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "out.parquet", "rows"]


def test_many_shards_give_the_same_predictions(
    tmp_path: pathlib.Path, shop_model: Artefact, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows(tmp_path)
    found = []
    for number, size in enumerate((2**26, 2000)):
        monkeypatch.setattr(predict, "SHARD_BYTES", size)
        output = tmp_path / f"out-{number}.parquet"
        assert call("predict", tmp_path / "model", tmp_path / "rows/*", "--output", output).code == 0
        found.append(pa.parquet.read_table(output))
    one, other = (np.array(sorted_pairs(table, "customer", "probability")) for table in found)
    assert one == pytest.approx(other, abs=1e-12)
    assert found[0].num_rows > 6000


def test_every_row_and_other_parameters_can_be_asked_for(
    tmp_path: pathlib.Path, shop_model: Artefact, call: Call
) -> None:
    tables = rows(tmp_path)
    output, more = tmp_path / "out.parquet", tmp_path / "more.parquet"
    given = ("predict", tmp_path / "model", tmp_path / "rows/*", "--every-row", "--output")
    assert call(*given, output).code == 0
    assert pa.parquet.read_metadata(output).num_rows == by_hand(tables, every=True).num_rows
    assert call(*given, more, "--param", "least=-1").code == 0
    assert pa.parquet.read_metadata(more).num_rows == 8000
    said = call(*given, tmp_path / "x", "--param", "other=1")
    assert (said.code, "--param other" in said.err) == (2, True)


def test_without_windows_rows_stay_in_order_and_units_need_not_be_known(tmp_path: pathlib.Path, call: Call) -> None:
    features = {name: FEATURES[name] for name in ("double", "product")}
    preparation = Preparation(source=SOURCE, columns={"double": "price * 2"}, examples_where="double > 4")
    made = model(tmp_path / "model", preparation, features=features)
    tables = rows(tmp_path, drop=("customer", "note", "store", "paid_at"))
    output = tmp_path / "out.parquet"
    said = call("predict", tmp_path / "model", tmp_path / "rows/*", "--output", output, "--keep", "price")
    assert said.code == 0, said.err
    found = pa.parquet.read_table(output)
    both = pa.concat_tables(tables)
    both = both.append_column("double", pa.array(both.column("price").to_numpy() * 2))
    both = both.filter(pa.array(both.column("double").to_numpy() > 4))
    assert found.column("price").equals(both.column("price"))
    assert found.column("probability").to_numpy() == pytest.approx(
        made.predict(both).column("probability").to_numpy(), abs=1e-12
    )


def test_csv_takes_the_types_of_training(tmp_path: pathlib.Path, shop_model: Artefact, call: Call) -> None:
    tables = rows(tmp_path, parts=1)
    pa.csv.write_csv(tables[0].drop_columns(["note"]), tmp_path / "rows.csv")
    for name, source in (("a", tmp_path / "rows/*"), ("b", tmp_path / "rows.csv")):
        said = call("predict", tmp_path / "model", source, "--output", tmp_path / name, "--keep", "visits")
        assert said.code == 0, said.err
    one, other = (pa.parquet.read_table(tmp_path / name) for name in ("a", "b"))
    assert sorted_pairs(one, "customer", "visits", "probability") == sorted_pairs(
        other, "customer", "visits", "probability"
    )


def test_prepared_examples_are_taken_as_they_are(tmp_path: pathlib.Path, shop_model: Artefact, call: Call) -> None:
    examples = by_hand([purchases(0, 400)])
    pa.parquet.write_table(examples, tmp_path / "examples.parquet")
    pa.csv.write_csv(examples.select(["visits", "double", "product"]), tmp_path / "examples.csv")
    for source in ("examples.parquet", "examples.csv"):
        output = tmp_path / f"{source}.out.parquet"
        said = call("predict", tmp_path / "model", tmp_path / source, "--examples", "--output", output)
        assert said.code == 0, said.err
        found = pa.parquet.read_table(output)
        assert found.column_names == (["customer"] if "parquet" in source else []) + ["probability"]
        assert found.column("probability").equals(shop_model.predict(examples).column("probability"))


def test_predictions_are_written_as_the_end_of_the_name_says(
    tmp_path: pathlib.Path, shop_model: Artefact, call: Call
) -> None:
    rows(tmp_path, parts=1)
    for name in ("a.parquet", "b.CSV", "c.jsonl"):
        said = call("predict", tmp_path / "model", tmp_path / "rows/*", "--output", tmp_path / name)
        assert said.code == 0, said.err
    wanted = sorted_pairs(pa.parquet.read_table(tmp_path / "a.parquet"), "customer", "probability")
    assert sorted_pairs(pa.csv.read_csv(tmp_path / "b.CSV"), "customer", "probability") == wanted
    assert sorted_pairs(pa.json.read_json(tmp_path / "c.jsonl"), "customer", "probability") == wanted
    # Without a unit a prediction is the only column, and CSV would have no line for a null.
    pa.csv.write_csv(by_hand([purchases(0, 40)]).select(["visits", "double", "product"]), tmp_path / "examples.csv")
    said = call("predict", tmp_path / "model", tmp_path / "examples.csv", "--examples", "--output", tmp_path / "d.csv")
    assert said.code == 2
    assert "column 'probability' is the only column" in said.err
    assert "name an output that ends in .parquet" in said.err
    assert not (tmp_path / "d.csv").exists()


ENDINGS = ("csv", "csv.gz", "csv.zst", "csv.bz2", "TSV", "tsv.gz", "jsonl", "jsonl.GZ", "parquet", "Parquet")


@pytest.mark.parametrize("ending", ENDINGS)
def test_other_programs_read_every_ending(
    tmp_path: pathlib.Path, shop_model: Artefact, call: Call, ending: str
) -> None:
    rows(tmp_path, parts=1)
    output = tmp_path / f"scores.{ending}"
    said = call("predict", tmp_path / "model", tmp_path / "rows/*", "--output", output, "--keep", "product")
    assert said.code == 0, said.err
    assert (
        call(
            "predict", tmp_path / "model", tmp_path / "rows/*", "--output", tmp_path / "plain", "--keep", "product"
        ).code
        == 0
    )
    names = ("customer", "product", "probability")
    wanted = sorted_pairs(pa.parquet.read_table(tmp_path / "plain"), *names)
    assert len(wanted) > 3000
    lowered = ending.lower()
    if lowered == "parquet":
        assert sorted_pairs(pa.parquet.read_table(output), *names) == wanted
        return
    if lowered.endswith("bz2"):
        (tmp_path / "plain.csv").write_bytes(bz2.decompress(output.read_bytes()))
        output, lowered = tmp_path / "plain.csv", "csv"
    codec = {"gz": "gzip", "zst": "zstd"}.get(lowered.rpartition(".")[2], "none")
    if lowered.startswith("jsonl"):
        read = f"read_json('{output}', format = 'newline_delimited', compression = '{codec}')"
    else:
        mark = "\\t" if lowered.startswith("tsv") else ","
        read = f"read_csv('{output}', delim = '{mark}', header = true, compression = '{codec}')"
    assert duckdb.sql(f"SELECT customer, product, probability FROM {read} ORDER BY ALL").fetchall() == wanted


def test_a_name_that_is_an_ending_is_one(tmp_path: pathlib.Path, shop_model: Artefact, call: Call) -> None:
    rows(tmp_path, parts=1)
    for name in (".csv", ".csv.gz", ".parquet"):
        said = call("predict", tmp_path / "model", tmp_path / "rows/*", "--output", tmp_path / name)
        assert said.code == 0, said.err
    wanted = sorted_pairs(pa.parquet.read_table(tmp_path / ".parquet"), "customer", "probability")
    assert sorted_pairs(pa.csv.read_csv(tmp_path / ".csv"), "customer", "probability") == wanted
    assert gzip.decompress((tmp_path / ".csv.gz").read_bytes()) == (tmp_path / ".csv").read_bytes()


@pytest.mark.parametrize(
    "name", [".gz", ".hidden", "scores.xlsx", "scores.json", "scores.csv.zip", "scores.gz", "scores.parquet.gz", "a.b"]
)
def test_an_unknown_ending_is_refused_with_the_list(
    tmp_path: pathlib.Path, shop_model: Artefact, call: Call, name: str
) -> None:
    rows(tmp_path, parts=1)
    said = call("predict", tmp_path / "model", tmp_path / "rows/*", "--output", tmp_path / name)
    assert said.code == 2
    assert "would be Parquet" in said.err if "parquet" in name else "has an unknown ending" in said.err
    listed = (
        "name a file that ends in .parquet, .csv, .tsv, .jsonl, or one of the latter with .gz, .zst, .bz2 behind it"
    )
    assert listed in said.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "rows"]


def test_a_name_without_an_ending_is_parquet_and_the_command_says_so(
    tmp_path: pathlib.Path, shop_model: Artefact, call: Call
) -> None:
    rows(tmp_path, parts=1)
    for name, told in (("scores", True), ("scores.parquet", False), (".csv", False)):
        said = call("predict", tmp_path / "model", tmp_path / "rows/*", "--output", tmp_path / name)
        assert said.code == 0, said.err
        assert ("as Parquet, since the name has no ending" in said.out) == told
    assert (tmp_path / "scores").read_bytes().startswith(b"PAR1")
    assert "(or no ending)" in call("predict", "--help").out


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_the_ids_that_a_job_declares_are_written_where_the_input_has_them(
    tmp_path: pathlib.Path, call: Call, kind: str
) -> None:
    preparation = dataclasses.replace(PREPARATION, row_id="receipt", source={**SOURCE, "receipt": "int64"})
    model(tmp_path / "model", preparation)
    table = purchases(0).append_column("receipt", pa.array(range(4000)))
    (tmp_path / "rows").mkdir()
    for name, ids in (("both", ["customer", "receipt"]), ("unit", ["customer"])):
        columns = [*ids, "product", "paid_at", "price"]
        write = pa.parquet.write_table if kind == "parquet" else pa.csv.write_csv
        write(table.select(columns), tmp_path / f"{name}.{kind}")
        output = tmp_path / f"{name}.out.parquet"
        said = call("predict", tmp_path / "model", tmp_path / f"{name}.{kind}", "--output", output, "--keep", "product")
        assert said.code == 0, said.err
        found = pa.parquet.read_table(output)
        assert found.column_names == [*ids, "product", "probability"]
    owners = dict(zip(table["receipt"].to_pylist(), table["customer"].to_pylist(), strict=True))
    found = pa.parquet.read_table(tmp_path / "both.out.parquet")
    if kind == "csv":
        assert found.schema.field("receipt").type == pa.string(), "no feature reads it: it is copied as it is written"
    receipts = [int(receipt) for receipt in found["receipt"].to_pylist()]
    assert len(set(receipts)) == len(receipts) > 3000
    assert [owners[receipt] for receipt in receipts] == found["customer"].to_pylist()


def with_receipts(path: pathlib.Path, receipts: Any, *, drop: tuple[str, ...] = ("note", "store")) -> pa.Table:
    """Write rows with a column of receipts, or without one, as the end of the name says."""
    table = purchases(0, 400).drop_columns(list(drop))
    table = table if receipts is None else table.append_column("receipt", receipts)
    path.parent.mkdir(exist_ok=True)
    (pa.parquet.write_table if path.suffix == ".parquet" else pa.csv.write_csv)(table, path)
    return table


@pytest.fixture
def receipt_model(tmp_path: pathlib.Path) -> Artefact:
    """A model whose job has a row id that nothing reads."""
    preparation = dataclasses.replace(PREPARATION, row_id="receipt", source={**SOURCE, "receipt": "int64"})
    return model(tmp_path / "model", preparation)


COUNTS = list(range(400))
TEXTS = pa.array([f"A{number:03d}" for number in COUNTS])


@pytest.mark.parametrize("kind", ["parquet", "csv"])
@pytest.mark.parametrize("examples", [False, True])
def test_a_row_id_of_another_type_is_copied(
    tmp_path: pathlib.Path, receipt_model: Artefact, call: Call, kind: str, examples: bool
) -> None:
    table = with_receipts(tmp_path / f"rows.{kind}", TEXTS)
    if examples:
        table = table.append_column("visits", pa.array(COUNTS)).append_column("double", pa.array(COUNTS))
        (pa.parquet.write_table if kind == "parquet" else pa.csv.write_csv)(table, tmp_path / f"rows.{kind}")
    more = ["--examples"] if examples else []
    said = call("predict", tmp_path / "model", tmp_path / f"rows.{kind}", "--output", tmp_path / "x.csv", *more)
    assert said.code == 0, said.err
    found = pa.csv.read_csv(tmp_path / "x.csv")
    assert found.column_names == ["customer", "receipt", "probability"]
    owners = dict(zip(table["receipt"].to_pylist(), table["customer"].to_pylist(), strict=True))
    assert len(found) > 300
    assert [owners[receipt] for receipt in found["receipt"].to_pylist()] == found["customer"].to_pylist()


def test_a_row_id_in_csv_keeps_its_zeros_unless_its_type_is_given(
    tmp_path: pathlib.Path, receipt_model: Artefact, call: Call
) -> None:
    with_receipts(tmp_path / "rows.csv", pa.array([f"{number:05d}" for number in COUNTS]))
    found = []
    for name, more in (("a", ()), ("b", ("--keep", "receipt")), ("c", ("--type", "receipt=int"))):
        said = call("predict", tmp_path / "model", tmp_path / "rows.csv", "--output", tmp_path / name, *more)
        assert said.code == 0, said.err
        found.append(pa.parquet.read_table(tmp_path / name)["receipt"].to_pylist())
    assert found[0] == found[1]
    assert "00007" in found[0]
    assert 7 in found[2]


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_row_id_that_some_file_lacks_is_left_out_with_a_note(
    tmp_path: pathlib.Path, receipt_model: Artefact, call: Call, kind: str
) -> None:
    with_receipts(tmp_path / "rows" / f"a.{kind}", pa.array(COUNTS))
    with_receipts(tmp_path / "rows" / f"b.{kind}", None)
    source = tmp_path / "rows" / "*"
    said = call("predict", tmp_path / "model", source, "--output", tmp_path / "x.csv")
    assert said.code == 0, said.err
    assert (
        "note: predictions have no column 'receipt', the job's row_id: not every file of the input has it" in said.err
    )
    assert pa.csv.read_csv(tmp_path / "x.csv").column_names == ["customer", "probability"]
    error = refused(call, tmp_path / "model", source, "--output", tmp_path / "y.csv", "--keep", "receipt")
    assert "'receipt'" in error
    assert "optional" not in error, "a key of job files"
    said = call("predict", tmp_path / "model", tmp_path / "rows" / f"b.{kind}", "--output", tmp_path / "z.csv")
    assert "the job's row_id: the input has no such column" in said.err


def test_a_row_id_that_the_output_cannot_hold_is_left_out_with_a_note(
    tmp_path: pathlib.Path, receipt_model: Artefact, call: Call
) -> None:
    receipts = {
        "duration[s]": pa.array(COUNTS, pa.duration("s")),
        "binary": pa.array([b"x"] * 400),
        "struct<a: int64>": pa.array([{"a": number} for number in COUNTS]),
    }
    for number, (kind, column) in enumerate(receipts.items()):
        with_receipts(tmp_path / f"{number}.parquet", column)
        given = ("predict", tmp_path / "model", tmp_path / f"{number}.parquet", "--output")
        said = call(*given, tmp_path / f"{number}.csv")
        assert said.code == 0, said.err
        assert f"the job's row_id: it is {kind}, which CSV cannot hold" in said.err
        assert pa.csv.read_csv(tmp_path / f"{number}.csv").column_names == ["customer", "probability"]
        said = call(*given, tmp_path / f"{number}.out.parquet")
        assert said.code == 0, said.err
        if pa.types.is_nested(column.type):
            assert "and the model needs windows, which take no nested columns" in said.err
            continue
        assert "row_id" not in said.err
        assert pa.parquet.read_schema(tmp_path / f"{number}.out.parquet").field("receipt").type == column.type


def test_a_column_that_a_text_cannot_hold_is_refused_before_anything_is_predicted(
    tmp_path: pathlib.Path, receipt_model: Artefact, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_receipts(tmp_path / "rows.parquet", pa.array(COUNTS, pa.duration("s")))
    lengths, real = [], Artefact.predict

    def watched(self: Artefact, table: pa.Table, **more: Any) -> pa.Table:
        lengths.append(table.num_rows)
        return real(self, table, **more)

    monkeypatch.setattr(Artefact, "predict", watched)
    error = refused(
        call, tmp_path / "model", tmp_path / "rows.parquet", "--output", tmp_path / "x.csv", "--keep", "receipt"
    )
    assert "column 'receipt' is duration[s], which CSV cannot hold; name an output that ends in .parquet" in error
    assert sum(lengths) == 0


def test_a_row_id_with_the_name_of_a_prediction_is_left_out_only_where_there_is_one(
    tmp_path: pathlib.Path, call: Call
) -> None:
    for name in ("prediction", "probability"):
        preparation = dataclasses.replace(PREPARATION, row_id=name, source={**SOURCE, name: "int64"})
        model(tmp_path / name, preparation)
        table = purchases(0, 400).append_column(name, pa.array(COUNTS))
        pa.parquet.write_table(table, tmp_path / f"{name}.parquet")
        said = call("predict", tmp_path / name, tmp_path / f"{name}.parquet", "--output", tmp_path / f"{name}.csv")
        assert said.code == 0, said.err
        clash = "the job's row_id: predictions have a column of that name" in said.err
        assert clash == (name == "probability"), "the label is binary: there is no prediction but a probability"
    assert pa.csv.read_csv(tmp_path / "prediction.csv").column_names == ["customer", "prediction", "probability"]
    assert pa.csv.read_csv(tmp_path / "probability.csv").column_names == ["customer", "probability"]


def test_a_row_id_that_a_feature_reads_has_the_type_of_training(tmp_path: pathlib.Path, call: Call) -> None:
    preparation = dataclasses.replace(PREPARATION, row_id="price")
    model(tmp_path / "model", preparation)
    table = with_receipts(tmp_path / "rows.csv", None)
    said = call("predict", tmp_path / "model", tmp_path / "rows.csv", "--output", tmp_path / "x.parquet")
    assert said.code == 0, said.err
    assert pa.parquet.read_schema(tmp_path / "x.parquet").field("price").type == pa.float64()
    odd = table.set_column(table.column_names.index("price"), "price", TEXTS)
    pa.parquet.write_table(odd, tmp_path / "odd.parquet")
    error = refused(call, tmp_path / "model", tmp_path / "odd.parquet", "--output", tmp_path / "y.parquet")
    assert "column 'price' as string, and the model was trained with double" in error


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_ids_of_prepared_examples_are_kept_in_any_format(
    tmp_path: pathlib.Path, shop_model: Artefact, call: Call, kind: str
) -> None:
    examples = by_hand([purchases(0, 400)]).select(["customer", "visits", "double", "product"])
    (pa.parquet.write_table if kind == "parquet" else pa.csv.write_csv)(examples, tmp_path / f"examples.{kind}")
    said = call(
        "predict", tmp_path / "model", tmp_path / f"examples.{kind}", "--examples", "--output", tmp_path / "x.csv"
    )
    assert said.code == 0, said.err
    found = pa.csv.read_csv(tmp_path / "x.csv")
    assert found.column_names == ["customer", "probability"]
    assert found["customer"].equals(examples["customer"])


def test_csv_without_the_unit_is_enough_where_no_example_needs_it(tmp_path: pathlib.Path, call: Call) -> None:
    features = {name: FEATURES[name] for name in ("double", "product")}
    model(tmp_path / "model", Preparation(source=SOURCE, columns={"double": "price * 2"}), features=features)
    pa.csv.write_csv(purchases(0, 40).select(["product", "price"]), tmp_path / "rows.csv")
    output = tmp_path / "out.parquet"
    assert call("predict", tmp_path / "model", tmp_path / "rows.csv", "--output", output).code == 0
    assert pa.parquet.read_table(output).column_names == ["probability"]


@pytest.mark.parametrize("name", ["paid_at", None])
def test_a_trained_model_knows_the_row_id_of_its_job(shop: Shop, call: Call, name: str | None) -> None:
    features = {"store": {"kind": "number", "column": "store", "min_value": 0, "max_value": 4}}
    learn = {"kind": "train", "label": {"kind": "binary", "column": "dear"}, "features": features}
    learn["fit"] = {"steps": 2}
    shop.write(row_id=name, columns={"dear": "price > 10"}, stages={"dear": {**learn, "model": {"kind": "linear"}}})
    assert call("run", shop.job, "--output", shop.folder / "out", "--ledger", "none").code == 0
    assert ("row_id" in json.loads((shop.folder / "out" / "dear" / "model.json").read_text())["preparation"]) == bool(
        name
    )
    said = call(
        "predict", shop.folder / "out", shop.folder / "data" / "part-0.parquet", "--output", shop.folder / "x.csv.gz"
    )
    assert said.code == 0, said.err
    with gzip.open(shop.folder / "x.csv.gz", "rt") as file:
        assert file.readline() == ",".join(f'"{n}"' for n in ("customer", name, "probability") if n) + "\n"


def test_models_without_a_row_id_are_described_as_before() -> None:
    assert "row_id" not in PREPARATION.to_json()
    assert Preparation(row_id="receipt").to_json()["row_id"] == "receipt"
    with pytest.raises(RequestError, match=r"preparation.row_id: must be a text"):
        Preparation(row_id=1)  # type: ignore[arg-type]


def test_json_says_what_was_written(tmp_path: pathlib.Path, shop_model: Artefact, call: Call) -> None:
    rows(tmp_path)
    output = tmp_path / "new" / "out.parquet"
    said = call("predict", tmp_path, tmp_path / "rows/*", "--output", output, "--json")
    assert said.code == 0, said.err
    assert json.loads(said.out) == {
        "model": str(tmp_path / "model"),
        "output": str(output),
        "predictions": pa.parquet.read_metadata(output).num_rows,
        "columns": ["customer", "probability"],
    }


def test_no_rows_give_an_empty_file_with_the_same_columns(
    tmp_path: pathlib.Path, shop_model: Artefact, call: Call
) -> None:
    pa.parquet.write_table(purchases(0).slice(0, 0), tmp_path / "none.parquet")
    output = tmp_path / "out.parquet"
    assert call("predict", tmp_path / "model", tmp_path / "none.parquet", "--output", output).code == 0
    assert pa.parquet.read_table(output).to_pydict() == {"customer": [], "probability": []}


def test_a_table_is_joined_where_the_features_need_it(tmp_path: pathlib.Path, call: Call) -> None:
    features = {"city": Category(column="city", categories=["Oslo", "Bonn"])}
    preparation = Preparation(source={**SOURCE, "store": "int32"}, lookup="store")
    made = model(tmp_path / "model", preparation, features=features)
    tables = rows(tmp_path)
    pa.parquet.write_table(pa.table({"store": [1, 2], "city": ["Oslo", "Bonn"]}), tmp_path / "stores.parquet")
    given = ("predict", tmp_path / "model", tmp_path / "rows/*", "--output", tmp_path / "out.parquet")
    said = call(*given)
    assert (said.code, "--lookup" in said.err) == (2, True)
    said = call(*given, "--lookup", tmp_path / "stores.parquet")
    assert said.code == 0, said.err
    stores = pa.concat_tables(tables).column("store").to_pylist()
    cities = pa.table({"city": [{1: "Oslo", 2: "Bonn"}.get(store) for store in stores]})
    found = pa.parquet.read_table(tmp_path / "out.parquet")
    assert found.column("probability").to_numpy() == pytest.approx(made.predict(cities)["probability"].to_numpy())


def test_several_tables_are_joined_in_their_order_and_make_as_many_examples_as_they_have_rows(
    tmp_path: pathlib.Path, call: Call
) -> None:
    features = {"tag": Category(column="tag", categories=["new", "red"])}
    joined = [
        {"on": {"store": "id"}, "csv": {"delimiter": ";"}, "types": {"id": "int32"}},
        {"on": {"city": "city"}, "max_rows_per_key": 2},
    ]
    made = model(
        tmp_path / "model", Preparation(source={**SOURCE, "store": "int32"}, lookups=joined), features=features
    )
    stores = pa.concat_tables(rows(tmp_path)).column("store").to_pylist()
    (tmp_path / "stores.csv").write_text("id;city\n1;Oslo\n2;Bonn\n")
    (tmp_path / "tags.csv").write_text("city,tag\nOslo,new\nBonn,red\nOslo,red\n")
    given = ("predict", tmp_path / "model", tmp_path / "rows/*", "--output", tmp_path / "out.parquet")
    said = call(*given, "--lookup", tmp_path / "stores.csv")
    assert (said.code, "is required 2 times, in the order of the job" in said.err) == (2, True)
    said = call(*given, *(word for name in ("stores", "tags") for word in ("--lookup", tmp_path / f"{name}.csv")))
    assert said.code == 0, said.err
    tags = [tag for store in stores for tag in {1: ["new", "red"], 2: ["red"]}.get(store, [None])]
    found = pa.parquet.read_table(tmp_path / "out.parquet").column("probability").to_numpy()
    expected = made.predict(pa.table({"tag": pa.array(tags, pa.string())}))["probability"].to_numpy()
    assert found == pytest.approx(expected)
    again = call(*given[:-1], tmp_path / "again.parquet", *["--lookup", tmp_path / "stores.csv"] * 3)
    assert "is given 3 times, and the model joins 2 public tables" in again.err


def test_nothing_but_the_note_is_said_on_standard_error(tmp_path: pathlib.Path, shop_model: Artefact) -> None:
    rows(tmp_path, parts=1)
    command = [sys.executable, "-m", "dp_pipelines.jobs.cli.main", "predict", str(tmp_path / "model")]
    command += [str(tmp_path / "rows/*"), "--output", str(tmp_path / "out.parquet")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, predict.NOTE + "\n")
    assert done.stdout.endswith("out.parquet\n")


def refused(call: Call, *arguments: object, code: int = 2) -> str:
    said = call("predict", *arguments)
    assert said.code == code, said.err
    assert "Traceback" not in said.err
    return said.err


def test_what_is_wrong_is_named_by_file_and_column(tmp_path: pathlib.Path, shop_model: Artefact, call: Call) -> None:
    folder, output = tmp_path / "model", tmp_path / "out.parquet"
    rows(tmp_path)
    source, given = tmp_path / "rows/*", ("--output", output)
    assert "not a model folder" in refused(call, tmp_path / "nowhere", source, *given)
    assert "matches no file" in refused(call, folder, tmp_path / "none/*", *given)
    pa.parquet.write_table(purchases(0).drop_columns(["price"]), tmp_path / "lean.parquet")
    error = refused(call, folder, tmp_path / "lean.parquet", *given)
    assert "lean.parquet" in error
    assert "has no column 'price'" in error
    error = refused(call, folder, source, *given, "--keep", "prise")
    assert "has no column 'prise'" in error
    assert "did you mean 'price'?" in error
    odd = purchases(0).set_column(4, "price", pa.array(["x"] * 4000))
    pa.parquet.write_table(odd, tmp_path / "odd.parquet")
    error = refused(call, folder, tmp_path / "odd.parquet", *given)
    assert "odd.parquet" in error
    assert "column 'price' as string, and the model was trained with double" in error
    assert "'double'" in refused(call, folder, tmp_path / "lean.parquet", *given, "--examples")
    (tmp_path / "torn.parquet").write_bytes(b"PAR1")
    assert "torn.parquet" in refused(call, folder, tmp_path / "torn.parquet", *given)
    (tmp_path / "rows.csv").write_text("customer,product,paid_at\n1,p1,2025-01-01\n")
    error = refused(call, folder, tmp_path / "rows.csv", *given)
    assert "rows.csv" in error
    assert "price" in error
    assert "--type" in refused(call, folder, tmp_path / "rows.csv", *given, "--type", "price")
    assert "--type" in refused(call, folder, source, *given, "--type", "price=int")
    assert not output.exists()
    output.write_text("mine")
    assert "already exists" in refused(call, folder, source, *given)
    assert output.read_text() == "mine"


def test_of_several_models_in_a_release_one_must_be_named(tmp_path: pathlib.Path, call: Call) -> None:
    for name in ("a", "b"):
        model(tmp_path / name)
    rows(tmp_path)
    assert "several models: 'a', 'b'" in refused(call, tmp_path, tmp_path / "rows/*", "--output", tmp_path / "out")


def test_a_column_called_like_the_prediction_is_refused(
    tmp_path: pathlib.Path, shop_model: Artefact, call: Call
) -> None:
    table = by_hand([purchases(0, 40)])
    table = table.append_column("probability", table.column("price"))
    pa.parquet.write_table(table, tmp_path / "x.parquet")
    given = ("--examples", "--keep", "probability", "--output", tmp_path / "out")
    assert "'probability' twice" in refused(call, tmp_path / "model", tmp_path / "x.parquet", *given)


def test_damage_that_shows_while_reading_leaves_nothing(
    tmp_path: pathlib.Path, shop_model: Artefact, call: Call
) -> None:
    rows(tmp_path, parts=1)
    path = tmp_path / "rows/part-0.parquet"
    raw = bytearray(path.read_bytes())
    raw[2000:30000] = b"\xff" * 28000
    path.write_bytes(bytes(raw))
    error = refused(call, tmp_path / "model", path, "--output", tmp_path / "out.parquet", code=1)
    assert "part-0.parquet" in error
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["model", "rows"]


def test_code_is_imported_only_where_the_command_line_names_it(
    tmp_path: pathlib.Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_model_of_a_test.py").write_text(
        "class Own:\n"
        "    @staticmethod\n"
        "    def scores(parameters, features):\n"
        "        return features.sum(axis=1) * 0\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    name = "own_model_of_a_test:Own"
    model(tmp_path / "model", model=JaxModel(name=name, parameters=3))
    rows(tmp_path)
    given = (tmp_path / "model", tmp_path / "rows/*", "--output", tmp_path / "out.parquet")
    assert f"must name the code that scores this model, {name!r}" in refused(call, *given)
    assert "must name the code" in refused(call, *given, "--jax-model", "os:system")
    assert "own_model_of_a_test" not in sys.modules
    said = call("predict", *given, "--jax-model", name)
    assert said.code == 0, said.err
    assert set(pa.parquet.read_table(tmp_path / "out.parquet").column("probability").to_pylist()) == {0.5}


def test_the_private_folder_is_private_while_it_is_there(
    tmp_path: pathlib.Path, shop_model: Artefact, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows(tmp_path)
    modes = []
    real = predict._write

    def watched(tables: Any, path: pathlib.Path) -> Any:
        modes.append(path.parent.stat().st_mode & 0o777)
        return real(tables, path)

    monkeypatch.setattr(predict, "_write", watched)
    assert call("predict", tmp_path / "model", tmp_path / "rows/*", "--output", tmp_path / "out").code == 0
    assert modes == [0o700]


@pytest.mark.parametrize("step", ["_write", "_by_units"], ids=["predictions", "shards"])
def test_a_disk_that_fills_up_or_is_read_only_is_told_and_leaves_nothing(
    tmp_path: pathlib.Path, shop_model: Artefact, call: Call, small_disk: SmallDisk, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:  # fmt: skip
    rows(tmp_path)
    command = ("predict", tmp_path / "model", tmp_path / "rows/*", "--output", small_disk.path / "out.parquet")
    real = getattr(predict, step)

    def filled(*arguments: Any) -> Any:
        small_disk.fill()
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(predict, step, filled)
        said = call(*command)
    assert (said.code, said.err.count("\n")) == (1, 2)
    assert f"folder {str(small_disk.path)!r}: the disk is full; nothing was published" in said.err
    assert small_disk.names() == []
    small_disk.read_only()
    assert f"folder {str(small_disk.path)!r}: the disk is read-only" in call(*command).err
    small_disk.writable()
    small_disk.free()
    assert call(*command).code == 0
    assert small_disk.names() == ["out.parquet"]
