"""Long texts: one digest for each, told from every short text; each digest arrives with its text, wherever rows are cut."""

import hashlib
import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dp_pipelines.errors import RequestError
from dp_pipelines.kernels import accumulate, keys, shard
from dp_pipelines.kernels.columns import hashing, long_text
from dp_pipelines.kernels.layout import Layout
from dp_pipelines.kernels.statistics import RowCount
from dp_pipelines.metrics.counts import Count
from dp_pipelines.planning.plan import Plan
from dp_pipelines.query.query import ContributionBounds, Query
from dp_pipelines.steps.aggregate import ToPartials, ToShards

SHORT, LONGEST = long_text.SHORT, long_text.LONGEST_KEY
LENGTHS = [0, 1, SHORT - 1, SHORT, SHORT + 1, SHORT + 2, 1000, LONGEST, LONGEST + 1]

texts = st.builds(lambda fill, size: (fill * size)[:size], st.sampled_from(["a", "é", "#0"]), st.sampled_from(LENGTHS))
kinds = st.sampled_from(
    [
        pa.string(),
        pa.binary(),
        pa.large_string(),
        pa.large_binary(),
        pa.string_view(),
        pa.dictionary(pa.int32(), pa.string()),
    ]
)


def column_of(values: list[str | None], kind: pa.DataType) -> pa.Array:
    plain = pa.array([None if v is None else v.encode() for v in values], pa.binary())
    if pa.types.is_dictionary(kind):
        return plain.cast(pa.string()).dictionary_encode()
    return plain.cast(pa.string()).cast(kind)


@given(st.lists(st.none() | texts, max_size=12), kinds, st.integers(0, 3))
def test_two_texts_are_one_key_exactly_if_they_are_equal(values, kind, cut):
    column = pa.chunked_array([column_of(part, kind) for part in (values[:cut], values[cut:])], kind)
    for found in (keys.comparable(column).to_pylist(), keys.plain_unit(column).to_pylist()):
        assert all(value is None or len(value) <= long_text.STAND_IN for value in found)
        for one, first in zip(found, values, strict=True):
            assert (one is None) == (first is None)
            assert all((one == other) == (first == second) for other, second in zip(found, values, strict=True))


@given(texts)
@example("a" * 65)
def test_no_text_is_taken_for_the_digest_of_another(text):
    digest = long_text.stand_in(text.encode()).decode()
    one, other = keys.comparable(pa.array([text, digest])).to_pylist()
    assert one != other


def test_the_digest_of_a_text_is_the_same_in_every_run_table_and_type():
    digest = "#" + hashlib.blake2b(b"a" * 65, digest_size=32).hexdigest()
    for kind in (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.large_string())):
        column = pa.array(["a" * 65], pa.string())
        column = column.dictionary_encode() if pa.types.is_dictionary(kind) else column.cast(kind)
        assert keys.comparable(column).to_pylist() == [digest]


def test_a_text_that_repeats_is_digested_once(monkeypatch):
    seen = []
    first = long_text.stand_in
    monkeypatch.setattr(long_text, "stand_in", lambda text: seen.append(text) or first(text))
    keys.comparable(pa.array(["a" * 100, "b" * 100] * 50))
    keys.comparable(pa.array(["a" * 100, "b" * 100] * 50).dictionary_encode())
    assert len(seen) == 4


@given(st.lists(st.none() | texts, max_size=9), kinds)
def test_partition_keys_come_back_whole_and_too_long_ones_are_null(values, kind):
    found: long_text.Texts = {}
    column = keys.encoded(column_of(values, kind), found)
    back = keys.plain(long_text.restored(column, found)).cast(pa.large_binary()).to_pylist()
    assert back == [None if v is None or len(v.encode()) > LONGEST else v.encode() for v in values]


@given(
    st.lists(st.tuples(st.integers(0, 5), st.none() | texts, st.none() | texts), max_size=30),
    st.lists(st.integers(0, 30), max_size=4),
    st.integers(1, 4),
    st.integers(1, 3),
)
def test_no_digest_arrives_without_its_text_whatever_batches_bounding_and_order(rows, cuts, shards, places):
    stage = PLAN["s"]
    units, first, second = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [])
    table = pa.table(
        {"u": pa.array(units, pa.int64()), "p": pa.array(first, pa.string()), "q": pa.array(second, pa.string())}
    )
    ends = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    of_shards: dict[int, list[pa.Table]] = {}
    for begin, end in itertools.pairwise(ends):
        for number, piece in ToShards(stage.layout, shards, 7).compute([table.slice(begin, end - begin)]):
            of_shards.setdefault(number, []).append(piece)
    of_places: dict[int, list[pa.Table]] = {}
    for number, tables in of_shards.items():
        for place, piece in ToPartials(stage, places, 7).compute((number, tables[::-1])):
            of_places.setdefault(place, []).append(piece)
    listed = {tuple(None if v is None or len(v.encode()) > LONGEST else v for v in row[1:]) for row in rows}
    for tables in of_places.values():
        merged = accumulate.merge(tables, stage.layout.partition_names, stage.statistics)
        columns = [column.to_pylist() for column in merged.keys(np.arange(len(merged.partitions[0])))]
        assert set(zip(*columns, strict=True)) <= listed


PLAN = Plan(
    epsilon=1.0,
    delta=1e-6,
    stages={
        "s": Query(
            privacy_unit="u",
            partition_by=["p", "q"],
            metrics={"n": Count()},
            bounds=ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=1),
        )
    },
)


def test_texts_go_to_each_destination_once_and_in_tables_that_are_not_large():
    found: long_text.Texts = {}
    names = [chr(97 + number) * 1000 for number in range(20)]
    rows = pa.table({"p0": keys.encoded(pa.array(names * 3), found)})
    sent = list(long_text.with_texts([(4, rows), (4, rows), (5, rows.slice(0, 2))], ["p0"], found, 5000))
    of_texts = [(place, table) for place, table in sent if long_text.KEY in table.column_names]
    assert [sum(t.num_rows for p, t in of_texts if p == place) for place in (4, 5)] == [20, 20]
    assert all(table.nbytes < 6000 for _, table in of_texts)
    assert sum(1 for _, table in sent if "p0" in table.column_names) == 3


def test_rows_without_long_texts_bring_none():
    rows = pa.table({"p0": keys.encoded(pa.array(["a"]), found := {})})
    assert list(long_text.with_texts([(0, rows)], ["p0"], found, 5000)) == [(0, rows)]


def test_a_public_key_that_no_row_can_have_is_refused():
    layout = Layout(units=("u",), partitions=("p",), max_partitions=1, public=(["a" * (LONGEST + 1)],))
    with pytest.raises(RequestError, match="lists a key of more than 16,384 bytes"):
        layout.wire(pa.table({"u": [1], "p": ["a"]}))


def test_a_long_public_key_is_matched_and_comes_out_as_it_was_listed():
    long = "k" * LONGEST
    layout = Layout(units=("u",), partitions=("p",), max_partitions=1, public=([long, "a"],))
    statistics = [RowCount()]
    wire = layout.wire(pa.table({"u": [1, 2, 3], "p": [long, "a", "b"]}))
    partial = accumulate.by_public_index(accumulate.partials(wire, layout, statistics, 7), layout)
    merged = accumulate.merge_public([partial], layout, statistics, 0, 1)
    assert merged.low[0].tolist() == [1, 1]
    assert merged.keys(np.arange(2))[0].to_pylist() == [long, "a"]


def test_hashing_a_text_of_a_mebibyte_takes_no_more_rounds_than_a_short_one(monkeypatch):
    rounds = []
    first = hashing.mix
    monkeypatch.setattr(hashing, "mix", lambda words: rounds.append(len(words)) or first(words))
    hashing.hash_columns([keys.comparable(pa.array(["a" * 2**20, "b"]))], 1)
    assert len(rounds) <= 12


def test_pieces_of_rows_have_one_type_however_large_their_whole_was():
    wide = pa.table({"p0": pa.array(["a" * 10] * 10, pa.large_string())})
    assert {piece.schema for piece in shard.pieces(wide, most=50)} == {pa.schema({"p0": pa.string()})}
