"""Long texts of rows in slices: nothing wraps, nothing is held at once, and where a cut falls shows in no value.

In: tables that take little and stand for much. Out: values, memory, refusals. Holds: results equal those without cuts.
Not covered: digests of long keys (`kernels.keys`).
"""

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.predict import predict
from dp_pipelines.jobs.sources import lookup
from dp_pipelines.jobs.sql import row_calculator, row_slices
from dp_pipelines.jobs.sql.expressions import bind
from dp_pipelines.jobs.sql.row_expressions import RowExpressions
from dp_pipelines.jobs.sql.windows import window_functions
from tests.helpers.examples import examples

TEXTS = st.none() | st.text(max_size=40)


def defined(table: pa.Table, where: str | None, **columns: str) -> RowExpressions:
    """A condition and columns over a table."""
    return bind(where, columns, table.schema, unit=["id"], values={})


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Rows with text in several layouts."""
    rows = draw(st.integers(0, 12))
    entries = draw(st.lists(TEXTS, min_size=1, max_size=3))
    places = draw(st.lists(st.none() | st.integers(0, len(entries) - 1), min_size=rows, max_size=rows))
    coded = pa.DictionaryArray.from_arrays(pa.array(places, pa.int32()), pa.array(entries, pa.string()))
    plain = draw(st.lists(TEXTS, min_size=rows, max_size=rows))
    nested = draw(st.lists(st.none() | st.lists(TEXTS, max_size=3), min_size=rows, max_size=rows))
    cut = draw(st.integers(0, rows))
    whole = pa.table(
        {
            "coded": coded,
            "plain": pa.array(plain, pa.string()),
            "nested": pa.array(nested, pa.list_(pa.string())),
            "n": pa.array(range(rows), pa.int64()),
        }
    )
    return pa.concat_tables([whole.slice(0, cut), whole.slice(cut)])


@given(tables(), st.integers(1, 200))
def test_cuts_cover_all_rows_and_only_a_row_alone_is_larger(table: pa.Table, most: int) -> None:
    cuts = list(row_slices.cut(table, table.column_names, most))
    assert [start for start, _ in cuts] == [0, *(stop for _, stop in cuts[:-1])]
    assert cuts[-1][1] == table.num_rows
    for start, stop in cuts:
        texts = (table.column(name).slice(start, stop - start).to_pylist() for name in ("coded", "plain"))
        held = sum(len((value or "").encode()) for column in texts for value in column)
        assert held <= most or stop - start == 1


@settings(max_examples=examples(25, 100))
@given(tables(), st.integers(1, 3000))
def test_where_a_cut_falls_shows_in_no_value(table: pa.Table, most: int) -> None:
    rows = defined(
        table,
        "n % 3 < 2 OR plain > 'a'",
        once="upper(coded)",
        asked="coalesce(coded, 'none') = 'none'",
        both="coded || plain",
        inner="list_contains(nested, coded)",
        text="CAST(n AS VARCHAR)",
    )
    decoded = pa.table({name: pa.array(table.column(name).to_pylist(), kind) for name, kind in PLAIN.items()})
    expected = rows.apply(decoded).to_pylist()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_slices, "SLICE_BYTES", most)
        parts = list(rows.tables(table))
        assert [row for part in parts for row in part.to_pylist()] == expected
        assert rows.apply(table).to_pylist() == expected


PLAIN = {"coded": pa.string(), "plain": pa.string(), "nested": pa.list_(pa.string()), "n": pa.int64()}


def test_an_entry_of_a_dictionary_is_evaluated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    run = row_calculator.Calculator._run
    monkeypatch.setattr(
        row_calculator.Calculator,
        "_run",
        lambda self, columns, rows, *rest: seen.append(rows) or run(self, columns, rows, *rest),
    )
    texts = pa.DictionaryArray.from_arrays(pa.array([0, 1, None] * 1000, pa.int32()), ["x" * 2**20, "y"])
    rows = defined(pa.table({"note": texts}), "note LIKE 'x%'", short="left(note, 2)", long="upper(note)")
    (found,) = rows.tables(pa.table({"note": texts}))
    assert sum(seen) < 20
    assert found.num_rows == 1000
    assert found.column("short").unique().to_pylist() == ["xx"]
    assert found.column("long").unique().to_pylist() == ["X" * 2**20]


HUGE = """
import sys, resource
import numpy as np, pyarrow as pa, pyarrow.compute as pc
from dp_pipelines.jobs.sources import lookup
from dp_pipelines.jobs.sql.expressions import bind
rows, size = 600_000, 4096
texts = pa.array(["a" * size, "b" * size])
note = pa.DictionaryArray.from_arrays(pa.array(np.arange(rows) % 2, pa.int32()), texts)
inside = pa.ListArray.from_arrays(pa.array(np.arange(rows + 1), pa.int32()), note)
table = pa.table({"note": note, "inside": inside, "n": np.arange(rows)})
assert rows * size > 2**31
columns = {"x": "note || CAST(n AS VARCHAR)", "first": "inside[1] || note", "once": "upper(note)"}
bound = bind("note IS NOT NULL AND n % 3 > 0", columns, table.schema, unit=["id"], values={})
listed = pa.table({"note": texts, "story": ["s" * 2**20, "t" * 2**20]})
joined = lookup.bind(listed, "note", bound.output_schema, unit=["id"])
bound.apply(table.slice(0, 10))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
kept = total = 0
for part in map(joined.apply, bound.tables(table)):
    kept += part.num_rows
    for name, text in (("x", lambda n: "ab"[n % 2] * size + str(n)), ("first", lambda n: "ab"[n % 2] * 2 * size),
                       ("once", lambda n: "AB"[n % 2] * size), ("story", lambda n: "st"[n % 2] * 2**20)):
        assert part.column(name)[-1].as_py() == text(part.column("n")[-1].as_py())
    total += sum(pc.sum(pc.binary_length(chunk)).as_py() or 0 for chunk in part.column("x").chunks)
wanted = [n for n in range(rows) if n % 3]
assert kept == len(wanted) and total == sum(size + len(str(n)) for n in wanted)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.slow
def test_texts_that_come_to_more_than_2_gib_take_little_memory_and_give_right_results() -> None:
    done = subprocess.run([sys.executable, "-c", HUGE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 1200, "MiB that evaluation took beside the rows"


def test_times_beyond_duckdbs_calendar_are_null_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_calculator.Calculator, "_search", lambda *_: pytest.fail("a row had to be searched for"))
    ends = [-(2**63), -(2**63) + 1, -9_223_372_022_400_000_001, -9_223_372_022_400_000_000, 0, 2**63 - 2, 2**63 - 1]
    times = pa.array(ends * 1500, pa.int64()).cast(pa.timestamp("us"))
    inside = pa.StructArray.from_arrays([times], names=["at"])
    listed = pa.ListArray.from_arrays(pa.array(range(len(times) + 1), pa.int32()), times)
    table = pa.table({"t": times, "s": inside, "l": listed, "n": times.cast(pa.int64())})
    known = [False, False, False, True, True, True, False] * 1500
    for sql in ("t", "s.at", "l[1]", "make_timestamp(n)"):
        found = defined(table, None, x=f"CAST({sql} AS VARCHAR)").apply(table).column("x")
        assert found.is_valid().to_pylist() == known
    assert defined(table, None, x="t || ''").apply(table).column("x")[4].as_py() == "1970-01-01 00:00:00"


def test_a_row_that_breaks_duckdb_costs_no_new_database(monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"t": pa.array([0, -(2**63) + 10, 1] * 5, pa.int64()).cast(pa.timestamp("us"))})
    rows = defined(table, None, x="CAST(t AS VARCHAR)")
    rows.apply(table)
    monkeypatch.setattr(row_calculator, "_in_range", lambda array: array)
    monkeypatch.setattr(row_calculator, "connect", lambda: pytest.fail("a row ended the database"))
    assert rows.apply(table).column("x").is_valid().to_pylist() == [True, False, True] * 5


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("json_extract_string(t, '$..a')", "values can overlap"),
        ("t->>'$..a'", "values can overlap"),
        (f"regexp_matches(t, '{'a' * 1001}')", "more than 1000 characters"),
        ("replace(replace(t, 'a', repeat('b', 3)), 'b', 'c')", "'repeat'"),
        (f"replace(replace(t, 'a', '{'b' * 100}'), 'b', '{'c' * 100}')", "4096 times as long"),
        ("time_bucket(INTERVAL 1 DAY, z, t)", "a constant is required"),
        ("isodow(to_days(n))", "not recognized"),
        ("t[1:2:2]", "not been implemented"),
    ],
)
def test_work_that_no_length_bounds_is_refused(sql: str, words: str) -> None:
    schema = pa.schema([("t", pa.string()), ("z", pa.timestamp("us", "UTC")), ("n", pa.int64())])
    with pytest.raises(RequestError, match=words) as caught:
        bind(None, {"x": sql}, schema, unit=["id"], values={})
    assert caught.value.field == "columns.x"


def test_a_pattern_replaced_everywhere_takes_short_texts_or_reads_no_further_than_it_matches() -> None:
    table = pa.table({"t": ["<b>x</b>", "a b" + "c" * 1021, "a b" + "c" * 1022, None]})
    tags = defined(table, None, x="regexp_replace(t, '<.*?>', '', 'g')").apply(table).column("x").to_pylist()
    assert tags == ["x", "a b" + "c" * 1021, None, None]
    for sql in (
        "regexp_replace(t, ' ', '', 'g')",
        "regexp_replace(t, '[ ]+', '', 'g')",
        "regexp_replace(t, ' .*', '')",
    ):
        assert defined(table, None, x=sql).apply(table).column("x")[2].is_valid


def test_marks_in_a_row_beyond_thirty_are_not_normalised() -> None:
    table = pa.table({"t": ["e\u0301" * 5000, "e" + "\u0301" * 30, "e" + "\u0301" * 31]})
    found = defined(table, None, x="nfc_normalize(t)").apply(table).column("x").to_pylist()
    assert found == ["\xe9" * 5000, "\xe9" + "\u0301" * 29, None]


def test_a_result_beyond_a_mebibyte_is_null_and_its_neighbours_are_not() -> None:
    table = pa.table({"t": ["a" * 2**19, "a" * (2**19 + 1), "a"], "n": [1, 2, 3]})
    found = defined(table, "length(t) > 0", x="concat(t, t)").apply(table)
    assert [len(value or "") for value in found.column("x").to_pylist()] == [2**20, 0, 2]


def test_a_lookup_names_long_texts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = pa.table(
        {
            "store": [1, 2, 3],
            "story": ["s" * 1000, None, "s" * 1000],
            "open": [1, 2, 3],
            "tags": [["x" * 900], [], None],
        }
    )
    table = pa.table({"store": pa.array([1, 2, 3, 4, None] * 20).dictionary_encode()})
    joined = lookup.bind(listed, "store", pa.schema([("store", pa.int64())]), unit=["id"])
    usual = joined.apply(table)
    assert usual.column("story").type == pa.string()
    monkeypatch.setattr(row_slices, "SLICE_BYTES", 2000)
    coded = joined.apply(table)
    assert pa.types.is_dictionary(coded.column("story").type)
    assert coded.column("tags").num_chunks > 1
    assert coded.to_pylist() == usual.to_pylist()
    assert usual.column("story").to_pylist()[:5] == ["s" * 1000, None, "s" * 1000, None, None]


def test_a_lookup_column_of_more_than_a_gibibyte_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "MOST_TEXT", 2**20)
    long = pa.DictionaryArray.from_arrays(pa.array([0] * 30, pa.int32()), ["x" * 2**16])
    for listed in (pa.table({"k": long}), pa.table({"k": range(30), "v": ["y" * 2**16] * 30})):
        with pytest.raises(RequestError, match="has more than 1 MiB in column"):
            lookup.bind(listed, "k", pa.schema([listed.schema.field("k")]), unit=[])


@given(st.lists(st.text(min_size=240, max_size=270), max_size=6))
def test_a_window_tells_long_texts_apart_in_few_bytes(values: list[str]) -> None:
    texts = pa.array([*values, *values, None], pa.string())
    found = window_functions.shortened(texts).to_pylist()
    assert len(set(found)) == len(set(texts.to_pylist()))
    for value, short in zip(texts.to_pylist(), found, strict=True):
        size = len(value.encode()) if value is not None else 0
        assert short == value if size <= 256 else len(short.encode()) == 257
    assert window_functions.shortened(pa.array([b"\xff" * 300])).to_pylist()[0][-64:].decode() == (
        hashlib.blake2b(b"\xff" * 300, digest_size=32).hexdigest()
    )


def test_predict_reads_texts_as_the_file_codes_them(tmp_path: Path) -> None:
    path = str(tmp_path / "rows.parquet")
    note = pa.DictionaryArray.from_arrays(pa.array(np.zeros(20_000, np.int32)), ["x" * 2**14])
    pa.parquet.write_table(pa.table({"note": note, "n": np.arange(20_000)}), path, store_schema=False)
    files = predict._Parquet([path])
    tables = list(files.read(["note", "n"]))
    assert sum(table.num_rows for table in tables) == 20_000
    assert max(table.nbytes for table in tables) < 2**20
