"""Bounded examples: what they are depends on their own unit's rows alone, through the real pipeline and in any way of cutting."""

import datetime
import itertools
import math
import pathlib
import random
import stat
import tempfile
from collections import Counter, defaultdict

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines import RequestError
from dp_pipelines.kernels import keys, sizes
from dp_pipelines.kernels import shard as sharding
from dp_pipelines.kernels.columns import hashing
from dp_pipelines.query.train_model import BinaryLabel, Category, Number, TrainModel
from dp_pipelines.release.staging import UNFINISHED
from dp_pipelines.steps import whole_units
from dp_pipelines.steps.whole_units import ToUnitShards, bounded, canonical
from dp_pipelines.steps.write_examples import SpillToShards, examples_of
from dp_pipelines.training.examples import bounded_examples
from dp_pipelines.training.examples.split import COLUMN, with_answers
from dp_pipelines.transforms.examples import BoundedExamples
from tests.helpers import graph

SALT = 0x5EED


def task_of(unit=("who",), most=3, label="returns"):
    features = {"age": Category(column="age", most=5), "spent": Number(column="spent", min_value=0, max_value=9)}
    return TrainModel(
        privacy_unit=list(unit), label=BinaryLabel(column=label), features=features, max_examples_per_unit=most
    )


class Windows:
    """Unit columns in plain Python: how many rows the unit has, and what it spent before, by day and then in the given order."""

    def apply(self, table):
        of_unit = defaultdict(list)
        for place, row in enumerate(table.select(["who", "day", "spent"]).to_pylist()):
            of_unit[row["who"]].append((row["day"], place, row["spent"] or 0.0))
        returns, before = [None] * table.num_rows, [None] * table.num_rows
        for rows in of_unit.values():
            total = 0.0
            for number, (_, place, spent) in enumerate(sorted(rows)):
                returns[place] = number + 1 < len(rows)
                before[place], total = total, total + (spent if math.isfinite(spent) else 0.0)
        return table.append_column("returns", pa.array(returns, pa.bool_())).append_column(
            "before", pa.array(before, pa.float64())
        )


READS = ("who", "day", "spent", "age")
SCHEMA = pa.schema([("who", pa.string()), ("day", pa.int64()), ("spent", pa.float64()), ("age", pa.string())])

row = st.fixed_dictionaries(
    {
        "who": st.sampled_from(["a", "b", "c", "a longer name", "", None]),
        "day": st.integers(1, 3),
        "spent": st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf, None]),
        "age": st.sampled_from(["A", "B", None]),
    }
)


def table_of(rows):
    return pa.Table.from_pylist(rows, SCHEMA)


def shaped(rows, task, cuts=(), shards=1, most=4, windows=True):
    """The examples of rows by way of the transform's own steps, cut in some way: shard to table."""
    pieces = defaultdict(list)
    reads = READS if windows else task.columns
    steps = whole_units.ToUnitShards(reads, task.unit_columns, most, shards, SALT)
    ends = [0, *sorted(min(cut, rows.num_rows) for cut in cuts), rows.num_rows]
    for begin, end in itertools.pairwise(ends):
        for number, piece in steps.compute(rows.slice(begin, end - begin)):
            pieces[number].append(piece)
    return {
        number: examples_of(tables, task, most, Windows() if windows else None, SALT)
        for number, tables in pieces.items()
    }


def lines_of(tables, unit="who"):
    """The examples of each unit, in their order, to the last bit."""
    found = defaultdict(list)
    for table in tables:
        for example in table.to_pylist():
            found[example[unit]].append(repr(example))
    return dict(found)


@given(st.lists(row, max_size=25), st.lists(st.integers(0, 25), max_size=3), st.sampled_from([1, 2, 300]))
def test_removing_a_unit_leaves_the_examples_of_all_others(rows, cuts, shards):
    task = task_of()
    everyone = lines_of(shaped(table_of(rows), task, cuts, shards).values())
    for gone in {row["who"] for row in rows} - {None}:
        others = [row for row in rows if row["who"] != gone]
        wanted = {unit: lines for unit, lines in everyone.items() if unit != gone}
        assert lines_of(shaped(table_of(others), task).values()) == wanted


@given(st.lists(row, max_size=25), st.randoms(use_true_random=False), st.lists(st.integers(0, 25), max_size=3))
def test_the_order_of_rows_and_their_batches_change_not_even_the_order_of_examples(rows, numbers, cuts):
    task = task_of()
    shuffled = list(rows)
    numbers.shuffle(shuffled)
    first, second = (shaped(table_of(some), task, at) for some, at in ((rows, ()), (shuffled, cuts)))
    assert first.keys() == second.keys() == {0}
    assert first[0].equals(second[0])


def test_unit_columns_cannot_say_who_is_held_out():
    class Telling(Windows):
        def apply(self, table):
            return super().apply(table).append_column(COLUMN, pa.array([True] * table.num_rows))

    rows = canonical(table_of([{"who": "a", "day": 1}, {"who": "b", "day": 2}]), READS, ["who"])
    assert COLUMN not in examples_of([rows], task_of(), 4, Telling(), SALT).column_names
    answered = with_answers(rows, ["who"], key=b"plan", held_out=0.5)
    assert COLUMN in examples_of([answered], task_of(), 4, Windows(), SALT).column_names


class InOrder(Windows):
    """The same over rows that it puts in the order of their content itself, as windows in SQL do."""

    any_order = True

    def apply(self, table):
        order = sorted(range(table.num_rows), key=lambda place: repr(table.slice(place, 1).to_pylist()))
        return super().apply(table.take(pa.array(order, pa.int64())))


@given(st.lists(row, max_size=25), st.lists(st.integers(0, 25), max_size=3), st.integers(1, 4))
def test_rows_that_come_in_any_order_are_those_that_are_kept_in_order(rows, cuts, most):
    plain = canonical(table_of(rows), READS, ["who"])
    ends = [0, *sorted(min(cut, plain.num_rows) for cut in cuts), plain.num_rows]
    pieces = [plain.slice(begin, end - begin) for begin, end in itertools.pairwise(ends)]
    some, others = (whole_units.whole_units(pieces, ["who"], most, SALT, ordered=one) for one in (True, False))
    assert some.schema == others.schema
    assert Counter(map(repr, some.to_pylist())) == Counter(map(repr, others.to_pylist()))


@given(st.lists(row, max_size=25), st.randoms(use_true_random=False), st.integers(1, 4))
def test_columns_that_put_rows_in_order_themselves_give_the_same_examples_however_rows_come(rows, numbers, most):
    shuffled = list(rows)
    numbers.shuffle(shuffled)
    pieces = [canonical(table_of(some), READS, ["who"]) for some in (rows, shuffled)]
    first, second = (examples_of([piece], task_of(), most, InOrder(), SALT) for piece in pieces)
    assert first.equals(second)
    bounded_first = canonical(bounded(pieces[0], ["who"], most, SALT), READS, ["who"])
    assert first.equals(examples_of([bounded_first], task_of(), most, InOrder(), SALT))


def by_hand(rows, task, most):
    """The kept rows of each unit: of the least hashes, ties by content, in plain Python."""
    plain = canonical(table_of(rows), task.columns, task.unit_columns)
    columns = [keys.one_array(column) for column in plain.columns]
    unit_hashes = hashing.hash_columns([columns[plain.column_names.index("who")]], SALT)
    hashes = hashing.hash_onto(unit_hashes, columns)
    of_unit = defaultdict(list)
    for at, values in enumerate(plain.to_pylist()):
        of_unit[values["who"]].append((int(hashes[at]), repr(values)))
    return {unit: [line for _, line in sorted(found)[:most]] for unit, found in of_unit.items()}


@given(st.lists(row, max_size=30), st.integers(1, 4))
def test_what_is_kept_of_a_unit_are_the_rows_of_the_least_hashes(rows, most):
    task = task_of(label="day")
    plain = canonical(table_of(rows), task.columns, task.unit_columns)
    assert lines_of([bounded(plain, ["who"], most, SALT)]) == by_hand(rows, task, most)


@given(st.lists(row, max_size=30), st.integers(1, 3), st.data())
def test_bounding_twice_keeps_what_bounding_once_keeps_even_where_all_hashes_are_equal(rows, most, data):
    plain = canonical(table_of(rows), READS, ["who"])
    cut = data.draw(st.integers(0, plain.num_rows))
    hashes = data.draw(st.sampled_from([hashing.hash_onto, lambda hashes, columns: np.zeros_like(hashes)]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hashing, "hash_onto", hashes)
        once = bounded(plain, ["who"], most, SALT)
        parts = [bounded(part, ["who"], most, SALT) for part in (plain.slice(cut), plain.slice(0, cut))]
        assert bounded(pa.concat_tables(parts), ["who"], most, SALT).equals(once)
    assert max(Counter(once["who"].to_pylist()).values(), default=0) <= most


def test_units_whose_hashes_are_equal_stay_apart(monkeypatch):
    monkeypatch.setattr(keys.Keys, "hashes", lambda self, salt: np.zeros(len(self), np.uint64))
    plain = canonical(table_of([{"who": who, "day": 1} for who in "babcb"]), READS, ["who"])
    assert bounded(plain, ["who"], 2, SALT)["who"].to_pylist() == ["a", "b", "b", "c"]


def run(tables, folder, task, *, shards=3, most=4, windows=True, options=()):
    """The examples in a folder, as the real pipeline writes them: file name to its bytes' table."""
    with beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions(list(options))) as pipeline:
        source = pipeline | beam.Create(tables, reshuffle=False).with_output_types(pa.Table)
        source | BoundedExamples(
            task,
            folder=folder,
            max_rows_per_unit=most,
            reads=READS if windows else None,
            unit_columns=Windows() if windows else None,
            num_shards=shards,
            salt=SALT,
        )
    return list(bounded_examples.tables(folder))


def many_rows(rows=600, users=60):
    numbers = random.Random(4)
    return [
        {
            "who": numbers.choice([None, *(f"user {i}" for i in range(users))]),
            "day": numbers.randrange(30),
            "spent": numbers.choice([None, math.nan, math.inf, 1.5, 2.5]),
            "age": numbers.choice(["A", None]),
        }
        for _ in range(rows)
    ]


@pytest.mark.parametrize("options", [[], ["--direct_runner_bundle_repeat=2"]], ids=["once", "every bundle three times"])
def test_through_a_pipeline_removing_a_unit_leaves_all_others(options, tmp_path):
    rows, task = many_rows(), task_of()
    (tmp_path / "all").mkdir()
    (tmp_path / "less").mkdir()
    table = table_of(rows)
    everyone = lines_of(run([table.slice(0, 100), table.slice(100)], tmp_path / "all", task, options=options))
    assert None not in everyone
    others = table_of([row for row in rows if row["who"] != "user 7"])
    less = lines_of(run([others], tmp_path / "less", task, shards=5))
    assert everyone.pop("user 7")
    assert less == everyone
    assert max(len(lines) for lines in everyone.values()) == 3
    names = sorted(path.name for path in (tmp_path / "all").iterdir() if not path.name.endswith(UNFINISHED))
    assert names == ["shard-00000.arrow", "shard-00001.arrow", "shard-00002.arrow"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "all").iterdir()} == {0o600}


def test_each_unit_is_whole_in_one_file_and_its_examples_lie_together(tmp_path):
    rows = many_rows()
    sizes = [rows[:100], rows[100:300], rows[300:]]
    tables = run([table_of(part) for part in sizes], tmp_path, task_of())
    runs = [unit for table in tables for unit in np.array(table["who"].to_pylist())[_begins(table)]]
    assert len(runs) == len(set(runs)) == 60


@pytest.mark.parametrize("most", [2, 1000])
def test_a_unit_is_in_the_same_shard_whatever_the_size_of_its_table(most):
    step = ToUnitShards(("who", "day"), ("who",), most, 300, SALT)
    rows = [row for row in many_rows() if row["who"] is not None]
    shards: dict[str, set[int]] = {}
    for begin, end in ((0, 50), (50, 200), (200, len(rows))):
        for index, part in step.compute(table_of(rows[begin:end])):
            for who in part["who"].to_pylist():
                shards.setdefault(who, set()).add(index)
    assert len(shards) == 60
    assert {len(of_unit) for of_unit in shards.values()} == {1}


def test_the_sizes_of_the_tables_change_no_example(tmp_path):
    rows, found = many_rows(), []
    for name, cuts in (("one", [0]), ("three", [0, 100, 300])):
        parts = [table_of(rows[begin:end]) for begin, end in itertools.pairwise([*cuts, len(rows)])]
        (tmp_path / name).mkdir(mode=0o700)
        tables = run(parts, tmp_path / name, task_of())
        found.append(sorted(str(row) for table in tables for row in table.to_pylist()))
    assert found[0] == found[1]


def _begins(table):
    who = np.array(table["who"].to_pylist())
    return np.flatnonzero(np.append(True, who[1:] != who[:-1])) if len(who) else np.zeros(0, int)


@pytest.mark.parametrize("tables", [[table_of([])], [table_of([{"who": None, "day": 1}])]])
def test_an_input_without_a_unit_gives_an_empty_file_with_types(tables, tmp_path):
    (found,) = run(tables, tmp_path, task_of())
    assert found.num_rows == 0
    assert found.schema == pa.schema(
        [("who", pa.string()), ("returns", pa.bool_()), ("age", pa.string()), ("spent", pa.float64())]
    )


def test_columns_are_plain_whatever_they_came_as(tmp_path):
    table = pa.table(
        {
            "who": pa.array([1, 2, None], pa.int8()),
            "returns": pa.array([True, None, True]).dictionary_encode(),
            "age": pa.array(["A", "B", "A"], pa.large_string()).dictionary_encode(),
            "spent": pa.array([math.nan, -0.0, 1.0], pa.float16()),
            "unread": [1, 2, 3],
        }
    )
    wider = table.set_column(0, "who", pa.array([3, 4, 2**40], pa.int64()))
    found = pa.concat_tables(run([table, wider], tmp_path, task_of(), windows=False), promote_options="permissive")
    assert [str(kind) for kind in found.schema.types] == ["int64", "bool", "string", "float"]
    assert sorted(found["who"].to_pylist()) == [1, 2, 3, 4, 2**40]
    assert sorted(found["spent"].to_pylist(), key=str) == [0.0, 0.0, 1.0, None, None]
    assert not np.signbit(found["spent"].fill_null(1).to_numpy()).any()


def test_a_unit_of_several_columns_of_any_type_is_one_unit(tmp_path):
    day = datetime.date(2026, 1, 1)
    table = pa.table({"a": [1.0, -0.0, 0.0, None, 0.0], "b": [day, day, day, day, None], "day": [1, 1, 1, 1, 1]})
    table = table.append_column("age", pa.nulls(5)).append_column("spent", pa.nulls(5, pa.int64()))
    found = run([table], tmp_path, task_of(unit=("a", "b"), most=1, label="day"), windows=False)
    assert sorted(pa.concat_tables(found, promote_options="permissive")["a"].to_pylist()) == [0.0, 1.0]


def test_of_a_unit_with_a_million_rows_few_are_ever_together(monkeypatch):
    monkeypatch.setattr(whole_units, "PORTION", 1000)
    seen = []
    whole = whole_units.bounded
    monkeypatch.setattr(
        whole_units, "bounded", lambda table, *rest: (seen.append(table.num_rows), whole(table, *rest))[1]
    )
    task, steps = task_of(label="day"), whole_units.ToUnitShards(READS, ("who",), 50, 4, SALT)
    pieces = defaultdict(list)
    for begin in range(0, 1_000_000, 20_000):
        one = pa.table({"who": ["x"] * 20_000, "day": range(begin, begin + 20_000)})
        one = one.append_column("spent", pa.nulls(20_000, pa.float64())).append_column(
            "age", pa.nulls(20_000, pa.string())
        )
        for number, piece in steps.compute(one):
            pieces[number].append(piece)
    (mine,) = [tables for tables in pieces.values() if sum(table.num_rows for table in tables)]
    assert sum(table.num_rows for table in mine) == 50 * 50
    seen.clear()
    found = examples_of(iter(mine), task, 50, None, SALT)
    assert found.num_rows == 3
    assert max(seen) <= 1000 + 50


def test_an_attempt_that_was_killed_is_never_read_and_a_second_one_changes_nothing(tmp_path):
    first = pathlib.Path(bounded_examples.write(pa.table({"who": [1]}), tmp_path, 0))
    (tmp_path / f".shard-00001.arrow.1-x{UNFINISHED}").write_bytes(b"half")
    assert bounded_examples.write(pa.table({"who": [2]}), tmp_path, 0) == str(first)
    assert [table.to_pydict() for table in bounded_examples.tables(tmp_path)] == [{"who": [1]}]


def test_what_was_spilled_comes_back_part_by_part_from_a_private_file(tmp_path):
    parts = [table_of(many_rows(rows)) for rows in (50, 0, 7)]
    places = bounded_examples.spill(parts, tmp_path)
    for place, part in zip(places, parts, strict=True):
        found = bounded_examples.spilled(place)
        assert found.schema == part.schema
        assert repr(found.to_pylist()) == repr(part.to_pylist())
    (path,) = tmp_path.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_waits_to_be_spilled_counts_for_what_it_becomes(tmp_path: pathlib.Path) -> None:
    """Texts that are no unit's are no digests once they are plain: each is as long as it was, up to 256 bytes."""
    texts = pa.array(["x" * 250, "y" * 250]).take(pa.array([0, 1] * 500)).dictionary_encode()
    table = pa.table({"who": list(range(1000)), "text": texts})
    cut = SpillToShards(("who", "text"), ("who",), 50, 3, SALT, folder=str(tmp_path), key=None, held_out=0.2)
    assert table.nbytes < 20_000
    assert cut.bytes_of(table) >= cut.rows(table).nbytes > 250_000


def test_tables_are_put_together_before_they_are_cut_and_types_that_differ_stay_apart(tmp_path):
    cut = SpillToShards(READS, ("who",), 50, 3, SALT, folder=str(tmp_path), key=None, held_out=0.2)
    rows = table_of(many_rows())
    wide = rows.set_column(rows.column_names.index("day"), "day", rows["day"].cast(pa.int32()))
    alone = cut.compute([rows])
    together = cut.compute([rows.slice(0, 200), wide.slice(200, 100), rows.slice(300)])
    assert len(list(tmp_path.iterdir())) == 2
    for pieces in (alone, together):
        found = defaultdict(list)
        for number, place in pieces:
            found[number].append(bounded_examples.spilled(place))
        whole = {number: examples_of(tables, task_of(), 50, Windows(), SALT) for number, tables in found.items()}
        assert lines_of(whole.values()) == lines_of(shaped(rows, task_of(), most=50).values())
    assert len(alone) == 4
    assert len(together) == 8
    assert cut.enough == sizes.gathered_columns_bytes(3, len(READS))


@pytest.mark.parametrize(
    ("table", "match"),
    [
        (pa.table({"who": ["secret"]}), "column 'returns': is not a column of the rows"),
        (
            pa.table({"who": ["secret"], "returns": [[True]], "age": ["A"], "spent": [1.0]}),
            "column 'returns': has type list",
        ),
    ],
)
def test_what_cannot_be_examples_is_refused_by_its_schema(table, match):
    with pytest.raises(RequestError, match=match) as caught:
        canonical(table, task_of().columns, ["who"])
    assert "secret" not in str(caught.value)


def test_a_folder_that_is_not_there_is_refused_at_once(tmp_path):
    with pytest.raises(RequestError, match="folder: does not exist"):
        BoundedExamples(task_of(), folder=tmp_path / "none", max_rows_per_unit=5)


def test_tables_that_disagree_on_the_type_of_a_column_are_refused():
    rows = [pa.table({"who": [1], "day": [1]}), pa.table({"who": ["1"], "day": [1]})]
    with pytest.raises(RequestError, match="disagree on the type"):
        sharding.joined(rows)


def test_examples_are_shuffled_once_and_never_pickled(tmp_path):
    pipeline = beam.Pipeline(runner=FnApiRunner())
    source = pipeline | beam.Create([table_of([])], reshuffle=False).with_output_types(pa.Table)
    source | BoundedExamples(task_of(), folder=tmp_path, max_rows_per_unit=5)
    assert graph.shuffles(pipeline) == ["BoundedExamples/ByShard"]
    assert [name for name in graph.pickled_collections(pipeline) if not name.startswith("Create")] == []


@settings(max_examples=20)
@given(st.lists(row, min_size=1, max_size=10), st.integers(0, 2**64 - 1))
def test_another_salt_may_keep_other_rows_but_as_many(rows, salt):
    plain = canonical(table_of(rows), READS, ["who"])
    counts = [Counter(bounded(plain, ["who"], 2, some)["who"].to_pylist()) for some in (SALT, salt)]
    assert counts[0] == counts[1]
    with tempfile.TemporaryDirectory() as folder:
        bounded_examples.write(plain, folder, 3)
        assert pc.equal(next(bounded_examples.tables(folder))["day"], plain["day"]).combine_chunks().false_count == 0
