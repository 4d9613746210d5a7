"""Avro: what types follow from schemas, what values follow from bytes, and what is damage."""

import decimal
import io
import json
import pathlib
import pickle
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from dp_pipelines.errors import DamagedInputError, RequestError
from dp_pipelines.extensions.lake import avro_files
from dp_pipelines.extensions.lake.avro_files import ReadAvro, look_at_avro
from dp_pipelines.extensions.lake.avro_types import column_of
from tests.helpers import copies

ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}


def write(path: pathlib.Path, fields: dict[str, Any], rows: list[dict[str, Any]], codec: str = "null") -> str:
    """An Avro file."""
    schema = {"type": "record", "name": "r", "fields": [{"name": n, "type": t} for n, t in fields.items()]}
    with open(path, "wb") as stream:
        fastavro.writer(stream, schema, rows, codec=codec)
    return str(path)


def read(path: str, names: list[str] | None = None, **more: Any) -> pa.Table:
    """The rows of a file."""
    schema = look_at_avro([path]).schema
    types = {name: schema.field(name).type for name in names or schema.names}
    tables = list(ReadAvro(types, **more).process(path))
    assert tables[0].num_rows == 0
    assert {table.schema for table in tables} == {pa.schema(types.items())}
    return pa.concat_tables(tables)


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz", "snappy", "zstandard"])
def test_a_table_comes_back_as_it_was_written(tmp_path: pathlib.Path, codec: str, quick: bool) -> None:
    table = copies.purchases(3000)
    path = tmp_path / "a.avro"
    with open(path, "wb") as stream:
        fastavro.writer(stream, copies.AVRO, table.to_pylist(), codec=codec, sync_interval=4000)
    assert read(str(path), quick=quick).equals(table)
    assert read(str(path), ["price", "customer"], quick=quick).equals(table.select(["price", "customer"]))


@pytest.mark.parametrize(
    ("kind", "values", "type_of"),
    [
        (ENUM, ["B", "A"], pa.string()),
        (["null", ENUM], ["B", None], pa.string()),
        (MONEY, [decimal.Decimal("1.25"), decimal.Decimal("-9.99")], pa.decimal128(5, 2)),
        ({"type": "int", "logicalType": "date"}, [20_000, -1], pa.date32()),
        (["long", "null"], [2**63 - 1, None], pa.int64()),
        ("float", [1.5, -2.0], pa.float32()),
        ("bytes", [b"\xff", b""], pa.binary()),
        ("boolean", [True, False], pa.bool_()),
        ({"type": "string", "avro.java.string": "String"}, ["a", ""], pa.string()),
        ({"type": "string", "logicalType": "other"}, ["a", ""], pa.string()),
    ],
)
@pytest.mark.parametrize("quick", [True, False])
def test_types_of_columns(tmp_path: pathlib.Path, kind: Any, values: list[Any], type_of: Any, quick: bool) -> None:
    path = write(tmp_path / "a.avro", {"x": kind}, [{"x": value} for value in values])
    found = read(path, quick=quick)["x"]
    assert found.type == type_of
    assert (found.cast(pa.int32()) if pa.types.is_date(type_of) else found).to_pylist() == values


def test_an_enum_that_several_columns_share_is_read_in_each(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "a.avro", {"x": ENUM, "y": ["null", "E"]}, [{"x": "A", "y": "B"}, {"x": "B", "y": None}])
    assert read(path).to_pylist() == [{"x": "A", "y": "B"}, {"x": "B", "y": None}]


def test_lists_of_numbers_are_read_and_their_nulls_stay(tmp_path: pathlib.Path) -> None:
    kind = ["null", {"type": "array", "items": ["null", "double"]}]
    path = write(tmp_path / "a.avro", {"x": kind}, [{"x": [1.0, None]}, {"x": None}, {"x": []}, {"x": [2.0]}])
    assert read(path)["x"].to_pylist() == [[1.0, None], None, [], [2.0]]


def _raw(path: pathlib.Path, kind: Any, cells: list[bytes]) -> str:
    """A file whose cells are written as they stand."""
    stream = io.BytesIO()
    schema = {"type": "record", "name": "r", "fields": [{"name": "x", "type": kind}, {"name": "n", "type": "long"}]}
    fastavro.writer(stream, schema, [], codec="null", sync_marker=bytes(16))
    data = b"".join(cell + avro_files.encoded(place) for place, cell in enumerate(cells))
    block = avro_files.encoded(len(cells)) + avro_files.encoded(len(data)) + data + bytes(16)
    path.write_bytes(stream.getvalue() + block)
    return str(path)


@pytest.mark.parametrize(
    ("kind", "bad", "good", "value"),
    [
        ("string", b"\x04\xff\xfe", b"\x02a", "a"),
        (ENUM, b"\x08", b"\x02", "B"),
        (ENUM, b"\x01", b"\x00", "A"),
        (MONEY, b"\x0e" + b"\x7f" * 7, b"\x02\x05", decimal.Decimal("0.05")),
    ],
)
@pytest.mark.parametrize("quick", [True, False])
def test_a_cell_that_its_type_does_not_hold_is_null_and_costs_no_other_anything(
    tmp_path: pathlib.Path, kind: Any, bad: bytes, good: bytes, value: Any, quick: bool
) -> None:
    found = read(_raw(tmp_path / "a.avro", kind, [good, bad, good]), quick=quick)
    assert found["x"].to_pylist() == [value, None, value]
    assert found["n"].to_pylist() == [0, 1, 2]


@pytest.mark.parametrize("quick", [True, False])
def test_a_time_beyond_any_calendar_is_no_error(tmp_path: pathlib.Path, quick: bool) -> None:
    kind = {"type": "long", "logicalType": "timestamp-millis"}
    found = read(_raw(tmp_path / "a.avro", kind, [avro_files.encoded(2**62), b"\x02"]), quick=quick)
    assert found["x"].cast(pa.int64()).to_pylist() == [2**62, 1]


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("place", [0.35, 0.6, 0.99])
@pytest.mark.parametrize("how", ["cut", "changed"])
def test_damage_names_the_file_and_quotes_nothing(tmp_path: pathlib.Path, quick: bool, place: float, how: str) -> None:
    rows = [{"x": f"secret {number}"} for number in range(2000)]
    path = write(tmp_path / "a.avro", {"x": "string"}, rows, codec="deflate")
    content = pathlib.Path(path).read_bytes()
    at = int(len(content) * place)
    other = bytes(255 - octet for octet in content[at : at + 40])
    pathlib.Path(path).write_bytes(content[:at] + (b"" if how == "cut" else other + content[at + 40 :]))
    with pytest.raises(DamagedInputError) as raised:
        list(ReadAvro({"x": pa.string()}, quick=quick).process(path))
    assert str(raised.value) == f"file {path!r}: a block of rows cannot be read; it is damaged"
    assert raised.value.__cause__ is None


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ({"type": "map", "values": "long"}, "map"),
        ({"type": "record", "name": "s", "fields": [{"name": "a", "type": "long"}]}, "record"),
        (["null", "long", "string"], "a union of several types"),
        ({"type": "array", "items": {"type": "array", "items": "long"}}, "array of another type"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 50}, "decimal of 50 digits"),
    ],
)
def test_a_column_of_another_type_is_refused_only_where_it_is_used(
    tmp_path: pathlib.Path, kind: Any, words: str
) -> None:
    assert words in str(column_of(kind, {}))
    path = write(tmp_path / "a.avro", {"x": kind, "n": "long"}, [])
    source = look_at_avro([path])
    assert source.schema.names == ["n"]
    assert words in str(source.missing["x"])


def test_rows_beside_a_column_of_another_type_are_read(tmp_path: pathlib.Path) -> None:
    inner = {"type": "record", "name": "s", "fields": [{"name": "a", "type": "string"}]}
    path = write(tmp_path / "a.avro", {"x": inner, "n": "long"}, [{"x": {"a": "b"}, "n": 1}, {"x": {"a": ""}, "n": 2}])
    assert read(path).to_pylist() == [{"n": 1}, {"n": 2}]


def test_what_is_wrong_by_public_facts_is_refused_at_once(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.avro").write_bytes(b"Obj\x01 but no more")
    with pytest.raises(RequestError, match="is not an Avro file of records"):
        look_at_avro([str(tmp_path / "a.avro")])
    path = write(tmp_path / "b.avro", {"n": "long"}, [{"n": 1}], codec="deflate")
    unknown = pathlib.Path(path).read_bytes().replace(b"deflate", b"zipping")
    pathlib.Path(path).write_bytes(unknown)
    with pytest.raises(RequestError, match="has codec 'zipping', which cannot be read here"):
        look_at_avro([path])
    one, two = (write(tmp_path / f"{kind}.avro", {"n": kind}, []) for kind in ("long", "int"))
    assert "has column 'n' as int32" in str(look_at_avro([one, two]).missing["n"])


@pytest.mark.parametrize(("said", "is_file"), [({}, True), ({"precision": None}, True), ({"precision": "9"}, False)])
def test_a_decimal_whose_precision_is_not_said_is_refused(tmp_path: pathlib.Path, said: Any, is_file: bool) -> None:
    path = tmp_path / "a.avro"
    kind = {"type": "bytes", "logicalType": "decimal", **said}
    path.write_bytes(_header([{"name": "x", "type": kind}, {"name": "n", "type": "long"}]))
    if is_file:
        source = look_at_avro([str(path)])
        assert source.schema.names == ["n"]
        assert "decimal without a precision" in str(source.missing["x"])
    else:
        with pytest.raises(RequestError, match="is not an Avro file of records"):
            look_at_avro([str(path)])


def test_a_file_that_has_a_name_twice_is_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.avro"
    path.write_bytes(_header([{"name": "n", "type": "long"}, {"name": "n", "type": "string"}]))
    with pytest.raises(RequestError, match="is not an Avro file of records"):
        look_at_avro([str(path)])


def _header(fields: list[dict[str, Any]]) -> bytes:
    """The header of a file that fastavro would not write."""
    schema = json.dumps({"type": "record", "name": "r", "fields": fields}).encode()
    entry = b"".join(avro_files.encoded(len(part)) + part for part in (b"avro.schema", schema))
    return b"Obj\x01" + avro_files.encoded(1) + entry + b"\0" + bytes(16)


def test_a_step_of_avro_travels_to_workers(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "a.avro", {"n": "long"}, [{"n": 1}])
    step = pickle.loads(pickle.dumps(ReadAvro({"n": pa.int64()})))
    assert pa.concat_tables(step.process(path)).num_rows == 1


def test_a_block_that_says_it_has_more_rows_than_bytes_is_damaged_and_ends_no_process() -> None:
    schema = {"type": "record", "name": "row", "fields": [{"name": "a", "type": "long"}]}
    decoder = avro_files._Decoder(schema, avro_files.columns_of(schema), ["a"], True)
    assert decoder.rows([(1, b"\x02")]).to_pydict() == {"a": [1]}
    with pytest.raises(EOFError):
        decoder.rows([(2**50, b"\x02")])
