"""Lists of keys on disk: every listed key is found, no other one is, and a list that does not rise is refused."""

import decimal
import pathlib
import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns import hashing, key_file_writer
from dp_pipelines.kernels.columns import key_file as key_files
from dp_pipelines.kernels.columns.key_file import KeyFile
from dp_pipelines.kernels.columns.key_file_writer import KeyFileWriter, WrongOrder
from tests.helpers.key_files import key_file


def found(listed: KeyFile, columns: list[pa.Array], places: int = 1) -> list[tuple[Any, ...] | None]:
    """For each key the listed key that it is, or None."""
    mine = [keys.comparable(column) for column in columns]
    hashes = listed.hashes(mine)
    assert (listed.dealt(hashes) <= hashes).all()
    answers: list[tuple[Any, ...] | None] = [None] * len(hashes)
    for place in range(places):
        for number in listed.buckets_of(place, places):
            asked = np.flatnonzero(listed.numbers(hashes) == number)
            bucket = listed.bucket(number)
            at = bucket.find([column.take(pa.array(asked)) for column in mine], hashes[asked])
            for row, where in zip(asked.tolist(), at.tolist(), strict=True):
                if where < len(bucket):
                    answers[row] = tuple(column[where].as_py() for column in bucket.columns)
    may = listed.may_hold(hashes)
    assert all(may[row] for row, answer in enumerate(answers) if answer is not None)
    return answers


LONG = "x" * 100
COLUMNS = {
    "numbers": [pa.array([-5, 0, 7, 2**62])],
    "texts": [pa.array(["", "a", "b" * 70, LONG, None])],
    "days": [pa.array([0, 5], pa.int32()).cast(pa.date32())],
    "decimals": [pa.array([decimal.Decimal("1.50"), decimal.Decimal("2.25")])],
    "truths": [pa.array([False, True, None])],
    "two columns": [pa.array(["a", "a", "b", "b", None]), pa.array([1, 2, 1, None, 1])],
}


@pytest.mark.parametrize("columns", COLUMNS.values(), ids=COLUMNS)
@pytest.mark.parametrize("sizes", [(2**18, 2**21), (1, 2), (2, 2)], ids=str)
def test_keys_are_found_whatever_their_type_and_the_size_of_buckets(
    columns: list[pa.Array], sizes: tuple[int, int], tmp_path: pathlib.Path
) -> None:
    listed = key_file(tmp_path / "list", *columns, bucket_keys=sizes[0], part_keys=sizes[1])
    wanted = list(zip(*(column.to_pylist() for column in columns), strict=True))
    assert found(listed, columns, places=3) == wanted
    others = [pa.array([], column.type) for column in columns]
    assert found(listed, others) == []
    again = pickle.loads(pickle.dumps(listed))
    assert again == listed
    assert found(again, columns) == wanted


@settings(max_examples=30, deadline=None)
@given(numbers=st.sets(st.integers(0, 400), min_size=1), places=st.integers(1, 9), size=st.integers(1, 40))
def test_exactly_the_listed_keys_are_found(
    numbers: set[int], places: int, size: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("lists") / "list"
    listed = key_file(folder, sorted(numbers), bucket_keys=size, part_keys=2 * size)
    asked = pa.array(range(-3, 404))
    assert found(listed, [asked], places) == [(n,) if n in numbers else None for n in asked.to_pylist()]
    buckets = [number for place in range(places) for number in listed.buckets_of(place, places)]
    assert buckets == list(range(1 << listed.bits)), "each bucket has one place"


def test_keys_with_equal_hashes_are_told_apart_by_the_whole_key(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = hashing.hash_columns
    monkeypatch.setattr(hashing, "hash_columns", lambda columns, salt: right(columns, salt) & np.uint64(7 << 61))
    listed = key_file(tmp_path / "list", list(range(0, 60, 2)), bucket_keys=4, part_keys=16)
    asked = pa.array(range(60))
    assert found(listed, [asked]) == [(n,) if n % 2 == 0 else None for n in range(60)]


def test_few_unlisted_keys_pass_the_filter(tmp_path: pathlib.Path) -> None:
    listed = key_file(tmp_path / "list", pa.array(range(0, 200_000, 2)))
    asked = pa.array(range(1, 200_000, 2))
    assert listed.may_hold(listed.hashes([asked])).mean() < 0.003


@pytest.mark.parametrize(
    ("columns", "row", "doubled"),
    [
        ([[1, 2, 2, 3]], 3, True),
        ([[1, 3, 2]], 3, False),
        ([["a", "b", "a"]], 3, False),
        ([[None, 1]], 2, False),
        ([[1, None, None]], 3, True),
        ([["a", "a", "b"], [2, 1, 1]], 2, False),
        ([["a", "b", "b"], [2, 1, 1]], 3, True),
        ([[*range(1000), 999]], 1001, True),  # across two tables
        ([[*range(2000), 5]], 2001, False),
    ],
)
def test_a_key_that_is_not_above_the_one_before_it_is_named_by_its_row(
    columns: list[list[Any]], row: int, doubled: bool, tmp_path: pathlib.Path
) -> None:
    with pytest.raises(WrongOrder) as caught:
        key_file(tmp_path / "list", *columns)
    assert (caught.value.row, caught.value.doubled) == (row, doubled)


def test_a_list_that_changes_while_it_is_read_is_refused(tmp_path: pathlib.Path) -> None:
    writer = KeyFileWriter(tmp_path, ["k"], 3)
    writer.add([pa.array([1, 2])])
    with pytest.raises(ValueError, match="changed"):
        writer.finish()
    assert key_file_writer.FILTER_BITS > key_files._BITS_OF_A_KEY
