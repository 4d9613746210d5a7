"""A public list of keys is the tuples that were declared, in every process, and says where keys stand in it.

In: lists of values of many types. Out: tuples, columns, places. Holds: tuples, pickles and files give the same list; the
places are those of plain Python.
"""

import datetime
import decimal
import pathlib
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines import PublicPartitions
from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns import key_places, listed_keys
from dp_pipelines.kernels.columns.column_types import arrow_values
from dp_pipelines.kernels.columns.key_places import KeyPlaces
from dp_pipelines.kernels.columns.listed_keys import ListedKeys

WHOLE = st.integers(-(2**63), 2**63 - 1)
VALUES: list[st.SearchStrategy[Any]] = [
    WHOLE, st.integers(2**63, 2**64 - 1), st.text(max_size=80), st.booleans(), st.binary(max_size=70), st.dates(), st.none()
]  # fmt: skip


@st.composite
def lists(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    """Keys of one, two or three values, of one type or null in each column."""
    parts = [st.none() | draw(st.sampled_from(VALUES)) for _ in range(draw(st.integers(1, 3)))]
    return draw(st.lists(st.tuples(*parts), min_size=1, max_size=12))


@given(lists())
def test_a_list_is_the_tuples_that_were_declared(listed: list[tuple[Any, ...]]) -> None:
    found = PublicPartitions(keys=listed).keys
    assert isinstance(found, ListedKeys)
    assert [[(type(value), value) for value in key] for key in found] == [[(type(v), v) for v in key] for key in listed]
    assert (found, found[0], found[-1], found[1:]) == (tuple(listed), listed[0], listed[-1], tuple(listed[1:]))
    assert repr(found) == repr(tuple(listed))
    assert PublicPartitions(keys=listed) == PublicPartitions(keys=listed)
    assert found != (*listed, listed[0])
    assert found != "no list"


@pytest.mark.parametrize(
    "listed",
    [[(1,), (1.0,)], [(1,), (True,)], [("a",), (1,)], [(decimal.Decimal("1.50"),)], [(2**70,)], [("\udcff",)],
     [(datetime.datetime(2026, 1, 5),)], [(1.5,), (-0.0,)], [()], [(1,), (1, 2)]],
    ids=str,
)  # fmt: skip
def test_what_arrow_would_change_stays_tuples(listed: list[tuple[Any, ...]]) -> None:
    found = PublicPartitions(keys=listed).keys
    assert isinstance(found, tuple)
    assert repr(found) == repr(tuple(listed))


@given(lists())
def test_arrays_of_the_types_of_data_are_the_tuples_of_their_values(listed: list[tuple[Any, ...]]) -> None:
    columns = [arrow_values(column) for column in zip(*listed, strict=True)]
    narrow = [column.cast(pa.int8()) if _fits_int8(column) else column for column in columns]
    found = ListedKeys.of_arrays(narrow)
    assert isinstance(found, ListedKeys)
    assert (found, [column.type for column in found.declared_arrays]) == (tuple(listed), [c.type for c in columns])


def _fits_int8(column: pa.Array) -> bool:
    return bool(pa.types.is_int64(column.type)) and all(-128 <= (v or 0) < 128 for v in column.to_pylist())


def test_times_decimals_and_what_else_python_sees_otherwise_are_declared_values_too() -> None:
    day = datetime.datetime(2026, 1, 5)
    seconds = ListedKeys.of_arrays([pa.array([day], pa.timestamp("s"))])
    assert isinstance(seconds, ListedKeys)
    assert (list(seconds), seconds.declared_arrays[0].type) == ([(day,)], pa.timestamp("us"))
    assert ListedKeys.of_arrays([pa.array([1], pa.decimal128(6, 2))]) == ((decimal.Decimal("1.00"),),)
    with pytest.raises((ValueError, OverflowError)):
        ListedKeys.of_arrays([pa.array([2**31 - 1], pa.int32()).cast(pa.date32())])


KEYS = st.lists(
    st.tuples(st.none() | st.integers(-3, 3), st.none() | st.sampled_from(["", "a", "b", "a" * 99])), max_size=30
)


@given(KEYS.filter(bool), KEYS, st.booleans())
def test_places_are_those_of_plain_python(
    listed: list[tuple[Any, ...]], asked: list[tuple[Any, ...]], clash: bool
) -> None:
    def columns(of: list[tuple[Any, ...]]) -> list[pa.Array]:
        return [
            keys.comparable(pa.array([key[i] for key in of], kind)) for i, kind in enumerate((pa.int64(), pa.string()))
        ]

    with pytest.MonkeyPatch.context() as patch:
        if clash:  # all keys have one hash, and equality alone tells them apart
            patch.setattr(key_places.hashing, "hash_columns", lambda c, salt: np.full(len(c[0]), 7, np.uint64))
        once = list(dict.fromkeys(listed))
        places = KeyPlaces.of(columns(once))
        assert not places.has_doubles
        expected = [once.index(key) if key in once else len(once) for key in asked]
        assert places.find(columns(asked)).tolist() == expected
        assert KeyPlaces.of(columns(listed)).has_doubles == (len(once) < len(listed))


@given(st.sets(st.integers(), min_size=1, max_size=300))
def test_many_keys_are_all_found(numbers: set[int]) -> None:
    listed = pa.array([number % 2**62 for number in numbers]).unique()
    assert KeyPlaces.of([listed]).find([listed]).tolist() == list(range(len(listed)))


def test_a_list_is_sorted_once_for_each_type_of_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    listed, sorts = ListedKeys([(1, 2, 3)]), []
    first = KeyPlaces.of.__func__  # type: ignore[attr-defined]
    monkeypatch.setattr(KeyPlaces, "of", classmethod(lambda cls, columns: sorts.append(0) or first(cls, columns)))
    for kind in (pa.int64(), pa.int8(), pa.int64(), pa.dictionary(pa.int8(), pa.int8())):
        assert len(listed.places(("p",), [kind])) == 3
    assert len(sorts) == 2


LARGE = [("store", number) for number in range(20_000)]


def test_a_process_that_holds_a_list_gets_the_same_one() -> None:
    listed = PublicPartitions(keys=LARGE).keys
    assert pickle.loads(pickle.dumps(listed)) is listed
    assert len(pickle.dumps([listed, listed])) < len(pickle.dumps(listed)) + 100


READ = """
import pickle, sys
listed = pickle.load(open(sys.argv[1], "rb"))
assert pickle.load(open(sys.argv[1], "rb")) is listed
kinds = [column.type for column in listed.declared_arrays]
print(type(listed).__name__, len(listed), listed[19_999], listed.places(("p", "q"), kinds).has_doubles)
"""


@pytest.mark.parametrize("through", [False, True])
def test_another_process_gets_it_as_arrow_or_through_a_folder(through: bool, tmp_path: pathlib.Path) -> None:
    listed, pickled, folder = PublicPartitions(keys=LARGE).keys, tmp_path / "pickled", tmp_path / "folder"
    folder.mkdir()

    def read() -> str:
        return subprocess.run(
            [sys.executable, "-c", READ, str(pickled)], capture_output=True, text=True, check=True
        ).stdout

    if not through:
        pickled.write_bytes(pickle.dumps(listed))
        assert read() == "ListedKeys 20000 ('store', 19999) False\n"
        return
    with listed_keys.travelling_through(folder, [None, listed]):
        pickled.write_bytes(pickle.dumps(listed))
        assert len(pickled.read_bytes()) < 1_000
        assert len(list(folder.iterdir())) == 1
        assert read() == "ListedKeys 20000 ('store', 19999) False\n"
    assert list(folder.iterdir()) == []


def test_of_two_runs_with_one_list_neither_depends_on_the_folder_of_the_other(tmp_path: pathlib.Path) -> None:
    listed, first, second = ListedKeys.of_tuples(tuple(LARGE)), tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    with listed_keys.travelling_through(first, [listed]), listed_keys.travelling_through(second, [listed]):
        pickle.dumps(listed)
        assert [*first.iterdir(), *second.iterdir()] == []


def test_values_of_different_kinds_travel_as_they_are() -> None:
    mixed = ListedKeys([("a", 1)])
    again = pickle.loads(pickle.dumps(mixed))
    with pytest.raises(ValueError, match="different kinds"):
        _ = again.declared_arrays
