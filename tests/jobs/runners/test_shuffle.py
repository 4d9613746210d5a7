"""What waits between steps: every value comes back once, whatever was spilled; a disk that is full is told without a size."""

import collections
import contextlib
import os
import pathlib
import threading
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.disk_errors import DiskError
from dp_pipelines.jobs.runners import shuffle


def table(number: int, rows: int = 1) -> pa.Table:
    return pa.table({"number": pa.array([number] * rows, pa.int64())})


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30)), max_size=15), min_size=1, max_size=3),
    st.integers(1, 2000),
)
def test_every_value_of_a_key_comes_back_once(adds: list[list[tuple[int, int]]], limit: int) -> None:
    held = shuffle.Held(limit, pathlib.Path("."))
    shuffles = [held.shuffle() for _ in adds]
    wanted = []
    for one, pairs in zip(shuffles, adds, strict=True):
        by_key: dict[int, list[tuple[int, int]]] = collections.defaultdict(list)
        for number, (key, rows) in enumerate(pairs):
            one.add((key, table(number, rows)))
            by_key[key].append((number if rows else -1, rows))
        wanted.append(by_key)
    for one, by_key in zip(shuffles, wanted, strict=True):
        assert sorted(one.keys) == sorted(by_key)
        for key in one.keys:
            found = [(t.column(0)[0].as_py() if t.num_rows else -1, t.num_rows) for t in one.take(key)]
            assert sorted(found) == sorted(by_key[key])
            assert one.take(key) == []
    assert held._bytes == 0
    held.close()


def test_threads_lose_nothing_while_others_spill(tmp_path: pathlib.Path) -> None:
    held = shuffle.Held(4000, tmp_path)
    one = held.shuffle()

    def add(first: int) -> None:
        for number in range(first, first + 300):
            one.add((number % 5, table(number, 3)))

    threads = [threading.Thread(target=add, args=(first,)) for first in (0, 300, 600, 900)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert one.places
    found = sorted(t.column(0)[0].as_py() for key in one.keys for t in one.take(key))
    assert found == list(range(1200))
    held.close()


def test_what_is_held_stays_below_the_limit(tmp_path: pathlib.Path) -> None:
    held = shuffle.Held(10_000, tmp_path)
    one = held.shuffle()
    for number in range(1000):
        one.add((0, table(number, 10)))
        assert held._bytes <= 10_000
    held.close()


def test_values_that_are_no_tables_stay(tmp_path: pathlib.Path) -> None:
    held = shuffle.Held(1, tmp_path)
    one = held.shuffle()
    for number in range(3):
        one.add((0, ("path", number)))
        one.add((0, table(number)))
    found = one.take(0)
    assert sorted(value[1] for value in found if isinstance(value, tuple)) == [0, 1, 2]
    assert sorted(value.column(0)[0].as_py() for value in found if isinstance(value, pa.Table)) == [0, 1, 2]
    held.close()


@contextlib.contextmanager
def spilling(one: shuffle.Shuffle, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A thread is in the middle of a spill, until the event."""
    began, go_on = threading.Event(), threading.Event()
    write = shuffle.Shuffle._write

    def slowly(self: shuffle.Shuffle, content: pa.Buffer) -> tuple[int, int]:
        began.set()
        assert go_on.wait(60)
        return write(self, content)

    monkeypatch.setattr(shuffle.Shuffle, "_write", slowly)
    thread = threading.Thread(target=one.add, args=((0, table(1, 1000)),))
    thread.start()
    assert began.wait(60)
    try:
        yield go_on
    finally:
        go_on.set()
        thread.join()


def test_while_a_thread_spills_others_wait_where_the_memory_is_full(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = shuffle.Held(10_000, tmp_path)
    one = held.shuffle()
    with spilling(one, monkeypatch) as go_on:
        one.add((1, table(2, 100)))  # of this there is room
        other = threading.Thread(target=one.add, args=((1, table(3, 300)),))
        other.start()
        time.sleep(0.2)
        assert other.is_alive()
        assert held._bytes <= 10_000
        go_on.set()
        other.join(60)
    assert sorted(t.num_rows for key in one.keys for t in one.take(key)) == [100, 300, 1000]
    held.close()


def test_what_is_being_spilled_is_waited_for(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = shuffle.Held(10_000, tmp_path)
    one = held.shuffle()
    one.add((0, "no table"))
    found: list[object] = []
    with spilling(one, monkeypatch) as go_on:
        taker = threading.Thread(target=lambda: found.extend(one.take(0)))
        taker.start()
        time.sleep(0.2)
        assert taker.is_alive()
        go_on.set()
        taker.join(60)
    assert {value if isinstance(value, str) else value.num_rows for value in found} == {"no table", 1000}
    held.close()


def test_where_files_without_a_name_cannot_be_made_the_name_goes_at_once(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    number = shuffle._private_file(tmp_path)
    state = os.fstat(number)
    os.close(number)
    assert (state.st_mode & 0o077, state.st_nlink) == (0, 0)
    assert list(tmp_path.iterdir()) == []


def test_the_file_is_this_users_alone_and_has_no_name(tmp_path: pathlib.Path) -> None:
    number = shuffle._private_file(tmp_path)
    state = os.fstat(number)
    os.close(number)
    assert state.st_mode & 0o077 == 0
    assert state.st_nlink == 0
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_refuses_is_told_with_its_folder_and_without_a_size(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    one = shuffle.Held(1, tmp_path).shuffle()
    with pytest.raises(DiskError) as told:
        one.add((0, table(4711, 99)))
    assert str(tmp_path) in str(told.value)
    assert "--spill-folder" in str(told.value)
    assert "4711" not in str(told.value)
    assert "99" not in str(told.value).replace(str(tmp_path), "")


def test_without_a_disk_nothing_may_be_beyond_memory() -> None:
    one = shuffle.Held(1, None).shuffle()
    with pytest.raises(shuffle.SpillFailed, match="--spill-folder"):
        one.add((0, table(1)))


def test_a_thread_that_still_spills_when_a_run_is_interrupted_writes_into_no_other_file(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of a file that is closed is that of the next one that is opened."""
    held, begun, go_on = shuffle.Held(100, tmp_path), threading.Event(), threading.Event()
    write = os.pwrite

    def slowly(file: int, content: bytes, at: int) -> int:
        begun.set()
        go_on.wait(60)
        return write(file, content, at)

    monkeypatch.setattr(os, "pwrite", slowly)
    one, before = held.shuffle(), len(os.listdir("/proc/self/fd"))
    thread = threading.Thread(target=one.add, args=((0, table(1, rows=100)),))
    thread.start()
    assert begun.wait(60)
    held.close()
    with (tmp_path / "ledger").open("wb"):
        go_on.set()
        thread.join()
    one.add((0, table(1, rows=100)))  # nothing is spilled any more
    assert (tmp_path / "ledger").read_bytes() == b""
    assert len(os.listdir("/proc/self/fd")) == before
