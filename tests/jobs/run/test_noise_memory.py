"""The private memories of runs: who may read them, which of them stay, and what is left when they are gone.

In: folders. Out: files, modes, errors. Holds: files are real. Not covered: runs that use them (`test_federate.py`).
"""

import dataclasses
import errno
import os
import pathlib
import stat

import pytest

from dp_pipelines.disk_errors import DiskError
from dp_pipelines.jobs.run import noise_memory
from dp_pipelines.jobs.run.noise_memory import NoiseMemory, folder_of
from dp_pipelines.ledger.entries import Cost, Run
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
    with pytest.raises(DiskError, match="the disk is full.*XDG_STATE_HOME"):
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


RUN = Run(account="shop", run_id="one", window="", plan="p", content="c", params={}, round=1, cost=Cost())


def over(tmp_path: pathlib.Path) -> Ledger:
    """A ledger with a run that was given up."""
    ledger = Ledger.create(str(tmp_path / "dp-ledger.sqlite"), anchor=str(tmp_path / "anchor"))
    run = dataclasses.replace(RUN, state="abandoned")
    ledger.state.runs[run.account, run.run_id] = run
    return ledger


def test_a_link_with_the_name_of_a_memory_leads_to_no_other_file(tmp_path: pathlib.Path) -> None:
    (tmp_path / "other").write_bytes(b"not ours")
    memory(tmp_path).remember("model", b"noise")
    (path,) = (tmp_path / "m").iterdir()
    path.unlink()
    path.symlink_to(tmp_path / "other")
    memory(tmp_path).forget("model")
    assert (tmp_path / "other").read_bytes() == b"not ours"
    assert not (tmp_path / "m").exists()


def test_a_folder_that_another_run_removes_meanwhile_is_made_again(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, times = os.open, list[str]()

    def slowly(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_CREAT and len(times) < 3:
            times.append(path)
            memory(tmp_path, "tuesday").forget_all()  # nothing is in the folder yet
        return made(path, flags, mode)

    monkeypatch.setattr(os, "open", slowly)
    digest = memory(tmp_path).remember("model", b"noise")
    assert len(times) == 3
    assert memory(tmp_path).recall("model", digest) == b"noise"


def test_a_ledger_has_one_place_of_memories_by_whatever_link_it_is_reached(tmp_path: pathlib.Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "dp-ledger.sqlite").touch()
    (tmp_path / "link.sqlite").symlink_to(tmp_path / "real" / "dp-ledger.sqlite")
    (tmp_path / "folder").symlink_to(tmp_path / "real")
    wanted = pathlib.Path(os.path.realpath(tmp_path)) / "real" / "dp-ledger.sqlite.dp-noise"
    for path in ("real/dp-ledger.sqlite", "link.sqlite", "folder/dp-ledger.sqlite"):
        assert folder_of(tmp_path / path, "l") == wanted


def test_a_memory_that_cannot_be_destroyed_holds_up_no_other_run(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = over(tmp_path)
    left = noise_memory.of_run(ledger, RUN)
    digest = left.remember("model", b"noise")

    def failing(path: pathlib.Path, missing_ok: bool = False) -> None:
        raise OSError(errors[-1], "no")

    errors = [errno.EACCES]
    with monkeypatch.context() as patched:
        patched.setattr(pathlib.Path, "unlink", failing)
        noise_memory.sweep(ledger)
        errors.append(errno.EROFS)
        noise_memory.sweep(ledger)
        with pytest.raises(DiskError, match="read-only"):
            left.forget("model")
    noise_memory.sweep(ledger)
    assert left.recall("model", digest) is None
    ledger.close()
