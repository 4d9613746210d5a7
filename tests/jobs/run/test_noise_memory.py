"""The private memories of runs: who may read them, which of them stay, and what is left when they are gone.

In: folders. Out: files, modes, errors. Holds: files are real. Not covered: runs that use them (`test_federate.py`).
"""

import os
import pathlib
import stat

import pytest

from dp_pipelines.disk_errors import DiskError
from dp_pipelines.jobs.run import noise_memory
from dp_pipelines.jobs.run.noise_memory import NoiseMemory, folder_of
from dp_pipelines.ledger.ledger import Ledger


def memory(place: pathlib.Path, run: str = "monday") -> NoiseMemory:
    return NoiseMemory(place / "m", "ledger", "shop", run)


def files(place: pathlib.Path) -> list[pathlib.Path]:
    return sorted(path for path in place.rglob("*") if path.is_file())


def test_only_this_user_can_read_a_memory(tmp_path: pathlib.Path) -> None:
    old = os.umask(0)
    try:
        memory(tmp_path).remember("model", b"noise")
    finally:
        os.umask(old)
    (path,) = files(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_memory_is_found_by_its_digest_in_another_process(tmp_path: pathlib.Path) -> None:
    digest = memory(tmp_path).remember("model", b"noise")
    assert memory(tmp_path).recall("model", digest) == b"noise"
    assert memory(tmp_path).recall("other", digest) is None
    assert memory(tmp_path, "tuesday").recall("model", digest) is None


def test_forgetting_leaves_what_is_still_needed_and_what_belongs_to_others(tmp_path: pathlib.Path) -> None:
    one, other = memory(tmp_path), memory(tmp_path, "tuesday")
    digests = [one.remember("model", bytes([number])) for number in range(3)]
    of_stage, of_run = one.remember("second", b"s"), other.remember("model", b"t")
    one.forget("model", but=digests[1])
    assert [one.recall("model", digest) for digest in digests] == [None, b"\x01", None]
    one.forget("model")
    assert one.recall("model", digests[1]) is None
    assert (one.recall("second", of_stage), other.recall("model", of_run)) == (b"s", b"t")
    one.forget_all()
    assert one.recall("second", of_stage) is None
    assert other.recall("model", of_run) == b"t"
    other.forget_all()
    assert not (tmp_path / "m").exists()


def test_the_bytes_of_a_memory_are_overwritten_before_its_name_goes(tmp_path: pathlib.Path) -> None:
    one = memory(tmp_path)
    one.remember("model", b"noise")
    (path,) = files(tmp_path)
    os.link(path, tmp_path / "again")
    one.forget("model")
    assert (tmp_path / "again").read_bytes() == bytes(5)


def test_what_a_killed_writer_has_left_is_forgotten_too(tmp_path: pathlib.Path) -> None:
    one = memory(tmp_path)
    one.remember("model", b"noise")
    (path,) = files(tmp_path)
    path.rename(path.with_name(f".{path.name}.0123"))
    one.forget("model")
    assert files(tmp_path) == []


def test_a_full_disk_is_told_as_such_and_nothing_half_written_stays(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskError, match="the disk is full"):
        memory(tmp_path).remember("model", b"noise")
    assert files(tmp_path) == []


def test_memories_of_a_ledger_on_a_server_lie_in_the_state_of_the_user() -> None:
    assert folder_of(None, "abc").name == "abc"
    assert "dp_pipelines" in folder_of(None, "abc").parts


def test_a_sweep_touches_no_run_that_goes_on(tmp_path: pathlib.Path) -> None:
    ledger = Ledger.create(str(tmp_path / "dp-ledger.sqlite"), anchor=str(tmp_path / "anchor"))
    place = folder_of(ledger.path, ledger.state.ledger)
    digest = NoiseMemory(place, ledger.state.ledger, "shop", "one").remember("model", b"noise")
    noise_memory.sweep(ledger)
    assert NoiseMemory(place, ledger.state.ledger, "shop", "one").recall("model", digest) == b"noise"
    ledger.close()
