"""One guard names the disk that is full, read-only or failing.

In: errors of the system, made and real ones. Out: what is raised in their place.
"""

import errno
import pathlib
import pickle

import pytest

from dp_pipelines.disk_errors import DiskError, quoted_in, reason_of, refuse_full, told_of_disk
from tests.helpers.small_disks import SmallDisk

OF_A_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EFBIG)


@pytest.mark.parametrize("number", OF_A_DISK)
def test_a_disk_is_told_by_its_folder_and_no_file(number: int) -> None:
    with pytest.raises(DiskError) as raised, told_of_disk("/out"):
        raise OSError(number, "whatever it says of 17 bytes", "/out/one customer")
    said = str(raised.value)
    assert said.startswith("folder '/out': ")
    assert said.endswith("; then run the same command again")
    assert "customer" not in said
    assert "17" not in said


@pytest.mark.parametrize("error", [OSError(errno.EACCES, "no"), OSError("no"), ValueError("no")])
def test_any_other_error_passes(error: Exception) -> None:
    assert reason_of(error) == ""
    with pytest.raises(type(error), match="no"), told_of_disk("/out"):
        raise error


def test_the_outermost_folder_is_the_one_that_is_told() -> None:
    with pytest.raises(DiskError) as raised, told_of_disk("/out"), told_of_disk("/out/.staging-1"):
        raise OSError(errno.EIO, "no")
    assert raised.value.folder == "/out"
    with pytest.raises(DiskError) as raised, told_of_disk("/out"):
        raise DiskError("", "the disk failed")
    assert raised.value.folder == "/out"


def test_a_folder_elsewhere_keeps_its_name_and_its_way_out() -> None:
    spill = told_of_disk("/spill", "choose another folder with --spill")
    with pytest.raises(DiskError, match="'/spill': the disk is full; .* with --spill;"), told_of_disk("/out"), spill:
        raise OSError(errno.ENOSPC, "no")


def test_it_crosses_processes_and_the_words_that_others_add() -> None:
    error = DiskError("/out/.staging-1", "the disk is full", "do something else")
    again = pickle.loads(pickle.dumps(error))
    assert (vars(again), str(again)) == (vars(error), str(error))
    assert quoted_in(str(error), "/elsewhere") is None
    for folder in ("/out/.staging-1", "/it's a folder '/.staging-1"):
        told = f"RuntimeError: Traceback ... folder 'x' {DiskError(folder + '/draws', 'the disk failed')} [while running 'a/b']"
        found = quoted_in(told, folder)
        assert found is not None
        assert (found.folder, found.reason) == (folder, "the disk failed")
    assert quoted_in("a row says: the disk is full; nothing was published", "/out") is None


def test_what_is_probed_leaves_nothing(tmp_path: pathlib.Path) -> None:
    refuse_full(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_real_disks_say_what_they_are(small_disk: SmallDisk) -> None:
    small_disk.fill()
    with pytest.raises(DiskError, match="the disk is full"), told_of_disk(small_disk.path):
        refuse_full(small_disk.path)
    small_disk.free()
    refuse_full(small_disk.path)
    small_disk.read_only()
    with pytest.raises(DiskError, match="the disk is read-only"), told_of_disk(small_disk.path):
        refuse_full(small_disk.path)
    small_disk.writable()
    refuse_full(small_disk.path)
