"""JSON lines: what a line is, what a value is, and that nothing that stands in a line changes another."""

import json
import pathlib
import pickle
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.errors import DamagedInputError, RequestError
from dp_pipelines.jobs.sources import source_files
from dp_pipelines.jobs.sources.json_lines import ReadJsonLines
from dp_pipelines.kernels.columns.csv_format import CsvFormat
from dp_pipelines.steps.read_files import Shuffled

TYPES = {"who": pa.string(), "n": pa.int64()}


def rows(path: pathlib.Path, content: bytes, types: dict[str, pa.DataType] = TYPES, **more: Any) -> list[Any]:
    """The rows of a file of these bytes."""
    path.write_bytes(content)
    tables = list(ReadJsonLines(types, **more).process(str(path)))
    assert tables[0].num_rows == 0
    assert {table.schema for table in tables} == {pa.schema(types.items())}
    return pa.concat_tables(tables).to_pylist()


@pytest.mark.parametrize(
    ("line", "row"),
    [
        (b'{"who": "a", "n": 1}', {"who": "a", "n": 1}),
        (b' \t{"n": 1, "who": "a"} \r', {"who": "a", "n": 1}),
        (b'{"who": 5, "n": "7"}', {"who": "5", "n": 7}),
        (b'{"who": true, "n": 1.5}', {"who": "true", "n": None}),
        (b'{"who": null, "n": 9223372036854775808}', {"who": None, "n": None}),
        (b'{"who": [1, 2], "n": {}}', {"who": "[1,2]", "n": None}),
        (b'{"who": 0.10, "n": 1E0}', {"who": "0.1", "n": None}),
        (b'{"who": 1E5}', {"who": "100000.0", "n": None}),
        (b'{"who": 12345678901234567890123}', {"who": "12345678901234567890123", "n": None}),
        (b'{"who": "a", "who": "b"}', {"who": "a", "n": None}),
        (b'{"who": "\\u00e9\\n"}', {"who": "\xe9\n", "n": None}),
        (b"{}", {"who": None, "n": None}),
        (b'{"who": NaN, "n": 2,}', {"who": "NaN", "n": 2}),
        *((line, None) for line in (b"", b"[1]", b'"who"', b"null", b"{", b'{"who": "a"', b"{}{}", b"// x")),
        *((line, None) for line in (b'{"who": "\xff"}', b'{"who": "\\ud800"}', b"[" * 100_000, b'{"who":' * 100_000)),
    ],
)
def test_a_line_is_a_row_or_none_and_costs_no_other_anything(
    tmp_path: pathlib.Path, line: bytes, row: dict[str, Any] | None
) -> None:
    around = {"who": "x", "n": 3}
    ends = json.dumps(around).encode()
    found = rows(tmp_path / "a.jsonl", b"\n".join([ends, line, ends]))
    assert found == [around, *([] if row is None else [row]), around]


def test_a_name_is_taken_literally(tmp_path: pathlib.Path) -> None:
    names = ["a.b", "a/b", "~1", "*", "it's", '"q"', "0", "é", "$"]
    line = json.dumps({name: place for place, name in enumerate(names)}).encode()
    found = rows(tmp_path / "a.jsonl", line, dict.fromkeys(names, pa.int64()))
    assert found == [{name: place for place, name in enumerate(names)}]


def test_times_are_iso_or_as_declared(tmp_path: pathlib.Path) -> None:
    types = {"day": pa.date32(), "at": pa.timestamp("us", "UTC")}
    line = b'{"day": "05.01.2026", "at": "2026-01-05T10:00:00+01:00"}'
    (found,) = rows(tmp_path / "a.jsonl", line, types, form=CsvFormat(formats={"day": ["%d.%m.%Y"]}))
    assert (str(found["day"]), str(found["at"])) == ("2026-01-05", "2026-01-05 09:00:00+00:00")


def test_neither_blocks_nor_tables_decide_rows(tmp_path: pathlib.Path) -> None:
    content = b"".join(b'{"who": "%d", "n": %d}\n' % (n, n) for n in range(3000)) + b"no\n"
    whole = rows(tmp_path / "a.jsonl", content)
    assert [row["n"] for row in whole] == list(range(3000))
    assert rows(tmp_path / "a.jsonl", content, block=100) == whole
    assert rows(tmp_path / "a.jsonl", content, shuffled=Shuffled(widest=2**20)) == whole


def test_the_mark_of_the_byte_order_is_no_part_of_the_first_line(tmp_path: pathlib.Path) -> None:
    assert rows(tmp_path / "a.jsonl", b'\xef\xbb\xbf{"n": 1}') == [{"who": None, "n": 1}]


@given(line=st.binary(max_size=60).filter(lambda line: b"\n" not in line))
def test_no_line_changes_another(tmp_path_factory: pytest.TempPathFactory, line: bytes) -> None:
    path = tmp_path_factory.mktemp("any") / "a.jsonl"
    found = rows(path, b'{"n": 1}\n' + line + b'\n{"n": 2}\n')
    assert (found[0]["n"], found[-1]["n"], len(found) <= 3) == (1, 2, True)


def test_a_step_travels_to_workers(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"n": 1}')
    step = pickle.loads(pickle.dumps(ReadJsonLines(TYPES)))
    assert pa.concat_tables(step.process(str(tmp_path / "a.jsonl"))).num_rows == 1


def test_a_file_that_the_disk_does_not_give_is_named(tmp_path: pathlib.Path) -> None:
    class Failing:
        def __enter__(self) -> "Failing":
            return self

        def __exit__(self, *failure: object) -> None: ...

        def read(self, size: int) -> bytes:
            raise OSError("sector 7")

    step = ReadJsonLines(TYPES, opener=lambda path: Failing())  # type: ignore[arg-type, return-value]
    with pytest.raises(DamagedInputError, match=r"file 'x': cannot be read to its end") as raised:
        list(step.process("x"))
    assert "sector" not in str(raised.value)


def test_only_types_and_names_are_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"\x00\xff no JSON at all")
    path = str(tmp_path / "a.jsonl")
    assert source_files.look_at_json_lines([path], {"n": "int64"}).schema == pa.schema([("n", pa.int64())])
    with pytest.raises(RequestError, match=r"source.types.n: unknown type 'int6'"):
        source_files.look_at_json_lines([path], {"n": "int6"})
    with pytest.raises(RequestError, match="cannot be opened"):
        source_files.look_at_json_lines([str(tmp_path / "b.jsonl")], {"n": "int64"})
