"""Lists that are sorted on disk: only one that is whole, and that nobody else may have written, is used."""

import os
import pathlib
import shutil
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dp_pipelines.disk_errors import DiskError
from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.sources import key_lists
from dp_pipelines.kernels.columns import key_file_writer
from dp_pipelines.kernels.columns.key_file import FACTS, FILTER, KEYS, KeyFile
from tests.helpers.small_disks import SmallDisk

SORTED = pathlib.Path("keys.parquet")


@pytest.fixture
def lists(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Where lists are kept; a file of keys stands in the folder of the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    pq.write_table(pa.table({"page": np.arange(5000)}), SORTED)
    return tmp_path / "cache" / "dp_pipelines" / "lists"


def sorted_list() -> KeyFile:
    """The list of the file."""
    return key_lists.sorted_list(SORTED, "keys.parquet", ["page"], None)


def found(listed: KeyFile) -> int:
    """How many of its 5,000 keys a list has, by its filter and its keys."""
    keys = [pa.array(np.arange(5000))]
    hashes = listed.hashes(keys)
    assert listed.may_hold(hashes).all()
    return int((listed.bucket(0).find(keys, hashes) < 5000).sum())


def emptied(file: str) -> Callable[[pathlib.Path], None]:
    """Cuts a file of a list."""
    return lambda folder: (folder / file).write_bytes(b"")


def removed(file: str) -> Callable[[pathlib.Path], None]:
    """Removes a file of a list, as what cleans caches by age does."""
    return lambda folder: (folder / file).unlink()


def writable(file: str) -> Callable[[pathlib.Path], None]:
    """Lets others write."""
    return lambda folder: (folder / file).chmod(0o777)


def by_a_file(folder: pathlib.Path) -> None:
    """Puts a file in the place of a list."""
    shutil.rmtree(folder)
    folder.write_text("")


DAMAGES = {
    **{f"cut {file}": emptied(file) for file in (KEYS, FILTER, FACTS)},
    **{f"no {file}": removed(file) for file in (KEYS, FILTER, FACTS)},
    **{f"others may write {file or 'the folder'}": writable(file) for file in ("", KEYS, FILTER, FACTS)},
    "a file in its place": by_a_file,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_list_that_is_cut_or_that_others_may_have_written_is_made_again(damage: str, lists: pathlib.Path) -> None:
    before = pathlib.Path(sorted_list().folder)
    DAMAGES[damage](before)
    again = sorted_list()
    assert found(again) == 5000
    assert not any(path.stat().st_mode & 0o022 for path in (before, *before.iterdir()))
    assert [path.name for path in lists.iterdir()] == [again.digest]


@pytest.mark.parametrize("above", [".", ".."])
def test_no_list_is_kept_in_a_folder_into_which_others_may_write(above: str, lists: pathlib.Path) -> None:
    folder = pathlib.Path(os.path.normpath(lists / above))
    lists.mkdir(parents=True, mode=0o700)
    lists.parent.chmod(0o700)
    folder.chmod(0o777)
    with pytest.raises(RequestError, match="which others may write"):
        sorted_list()
    assert list(lists.iterdir()) == []


@pytest.mark.parametrize("home", ["a file", "/proc/nowhere"])
def test_a_cache_that_cannot_be_made_is_refused(
    home: str, lists: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pathlib.Path("a file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", home)
    with pytest.raises(RequestError, match="which cannot be written; point XDG_CACHE_HOME to a folder of your own"):
        sorted_list()


def test_a_list_is_used_again_whatever_umask_says(lists: pathlib.Path) -> None:
    before = os.umask(0o002)
    try:
        made = pathlib.Path(sorted_list().folder)
        inode = made.stat().st_ino
        sorted_list()
    finally:
        os.umask(before)
    assert made.stat().st_ino == inode


def test_a_file_that_changes_while_it_is_sorted_makes_no_list(
    lists: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class WhileItChanges(key_file_writer.KeyFileWriter):
        """Somebody writes the file with as many other keys, once its digest is known."""

        def finish(self) -> None:
            pq.write_table(pa.table({"page": np.arange(1, 5001)}), SORTED)
            super().finish()

    monkeypatch.setattr(key_lists, "KeyFileWriter", WhileItChanges)
    with pytest.raises(RequestError, match="has changed while it was read"):
        sorted_list()
    assert list(lists.iterdir()) == []


def test_of_two_that_sort_one_list_at_a_time_both_use_that_of_the_first(
    lists: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first: list[int] = []

    class Second(key_file_writer.KeyFileWriter):
        """The first comes to its end while this one is about to."""

        def finish(self) -> None:
            super().finish()
            if not first:
                first.append(0)
                first[0] = pathlib.Path(sorted_list().folder).stat().st_ino

    monkeypatch.setattr(key_lists, "KeyFileWriter", Second)
    listed = sorted_list()
    assert found(listed) == 5000
    assert [path.stat().st_ino for path in lists.iterdir()] == first


def test_a_damaged_file_is_refused(lists: pathlib.Path) -> None:
    pq.write_table(pa.table({"page": np.arange(5000)}), SORTED, compression="snappy", use_dictionary=False)
    content = bytearray(SORTED.read_bytes())
    content[100:2000] = bytes(1900)
    SORTED.write_bytes(content)
    with pytest.raises(RequestError, match="cannot be read as Parquet"):
        sorted_list()
    assert list(lists.iterdir()) == []


LEFT = {"keys by part": 1, "the filter": 2.75, "the keys": 3.1}


@pytest.mark.parametrize("until", LEFT)
def test_a_full_disk_is_told_wherever_it_fills_up_and_nothing_stays(
    until: str, lists: pathlib.Path, small_disk: SmallDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(small_disk.path / "cache"))
    pq.write_table(pa.table({"page": np.arange(300_000)}), SORTED)  # 2.3 MiB of keys, and 0.9 of the filter
    small_disk.fill(leave=int(LEFT[until] * 2**20))
    with pytest.raises(DiskError, match="the disk is full"):
        sorted_list()
    assert list((small_disk.path / "cache" / "dp_pipelines" / "lists").iterdir()) == []
    small_disk.free()
    assert len(sorted_list()) == 300_000
