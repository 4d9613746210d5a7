"""Threads, memory and the spill folder: what the machine gives, and what is refused before a charge."""

import os
import pathlib
import tempfile
from collections.abc import Callable

import pytest

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.runners import local_engine, local_options
from dp_pipelines.jobs.runners.engines import EngineAttempt
from dp_pipelines.ledger import disks
from tests.jobs.conftest import Said, Shop

MIB = 2**20


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--threads=0"], "--threads: must be a whole number from 1 to"),
        (["--threads=two"], "--threads: must be a whole number from 1 to"),
        (["--threads=1", "--memory=1MiB"], "--memory: must be at least 640MiB for 1 thread"),
        (["--threads=8", "--memory=1GiB"], "with --threads 2 it needs less"),
        (["--memory=much"], "--memory: must be a number of bytes; write e.g. --memory 4GiB"),
        (["--spill-folder=/none/such"], "is not a folder; create it first"),
        (["--spill-folder="], "is not a folder; create it first"),
        (["--spill-folder=a\0b"], "is not a folder; create it first"),
        (["--spil-folder=."], "did you mean '--spill-folder'"),
        (["--num_workers=3"], "options of Beam need its own runner: add --runner direct"),
        (["--num_shards=0"], "--num_shards: must be a whole number"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_wrong_options_are_refused_with_their_rule(arguments: list[str], told: str) -> None:
    with pytest.raises(RequestError) as refused:
        local_options.read(arguments)
    assert told in str(refused.value)


@pytest.mark.parametrize("refuses", ["is_dir", "stat"])
def test_a_spill_folder_that_this_user_may_not_look_at_is_refused(
    refuses: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = getattr(pathlib.Path, refuses)

    def refused(self: pathlib.Path, **options: bool) -> object:
        if self == tmp_path:
            raise PermissionError(13, "Permission denied", str(self))
        return real(self, **options)

    monkeypatch.setattr(pathlib.Path, refuses, refused)
    with pytest.raises(RequestError, match="cannot be written: Permission denied; choose a folder where this user may"):
        local_options.read([f"--spill-folder={tmp_path}", "--memory=2GiB", "--threads=1"])


def test_a_spill_folder_in_memory_is_refused(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"disk / ext4 rw 0 0\ntmpfs {tmp_path} tmpfs rw 0 0\n")
    monkeypatch.setattr(disks, "MOUNTS", mounts)
    with pytest.raises(RequestError, match="is on tmpfs, which is memory and no disk"):
        local_options.read([f"--spill-folder={tmp_path}"])


def test_fewer_threads_where_little_memory_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_options, "_cores", lambda: 16)
    monkeypatch.setattr(local_options, "free_memory", lambda: 4096 * MIB)
    found = local_options.read([])
    assert (found.threads, found.memory) == (5, 2048 * MIB)
    assert found.waiting_bytes >= local_options.LEAST_WAITING


def test_the_least_of_all_limits_counts(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:   5000 kB\n")
    (tmp_path / "limit").write_text("3000000\n")
    (tmp_path / "none").write_text("max\n")
    monkeypatch.setattr(local_options, "MEMINFO", str(tmp_path / "meminfo"))
    monkeypatch.setattr(local_options, "CGROUPS", (str(tmp_path / "none"), str(tmp_path / "absent")))
    monkeypatch.setattr(local_options, "GROUPS", str(tmp_path / "absent"))
    assert local_options.free_memory() == 5000 * 1024
    monkeypatch.setattr(local_options, "CGROUPS", (str(tmp_path / "limit"),))
    assert local_options.free_memory() == 3_000_000
    inner = tmp_path / "slice" / "job"
    inner.mkdir(parents=True)
    (inner / "limit").write_text("2000000\n")
    (inner.parent / "limit").write_text("1000000\n")
    (tmp_path / "groups").write_text("7:cpu:/\n0::/slice/job\n")
    monkeypatch.setattr(local_options, "GROUPS", str(tmp_path / "groups"))
    assert local_options.free_memory() == 1_000_000  # a group is held by those around it


def test_wrong_options_cost_nothing_and_leave_nothing(shop: Shop, call: Callable[..., Said]) -> None:
    before = shop.left()
    for option in ("--threads=0", "--memory=1MiB", "--spill-folder=/none/such"):
        said = call("run", shop.job, "--output", shop.folder / "out", option)
        assert said.code == 2, said.err
        assert option.partition("=")[0] in said.err
    assert shop.left() == before


def test_a_spill_folder_of_another_user_is_refused_unless_nobody_can_take_what_is_in_it(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if tmp_path.stat().st_uid == 0:  # the administrator's folders are trusted
        os.chown(tmp_path, 4321, -1)
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(RequestError, match="belongs to another user, who could take what is written there"):
        local_options.read([f"--spill-folder={tmp_path}", "--memory=2GiB"])
    tmp_path.chmod(0o1777)
    assert local_options.read([f"--spill-folder={tmp_path}", "--memory=2GiB", "--threads=1"]).spill_folder == tmp_path


def test_rows_are_spilled_beside_the_output_but_not_into_memory(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, memory = tmp_path / "disk", tmp_path / "memory"
    disk.mkdir()
    memory.mkdir()
    mounts = tmp_path / "mounts"
    mounts.write_text(f"disk / ext4 rw 0 0\ntmpfs {memory} tmpfs rw 0 0\n")
    monkeypatch.setattr(disks, "MOUNTS", mounts)
    monkeypatch.setattr(tempfile, "tempdir", str(disk))
    engine = local_engine.configured(["--threads=1", "--memory=1GiB"])
    for folder in (disk, memory):
        with engine.attempt(EngineAttempt(key="k", folder=folder, submitted=lambda job: None)):
            found = engine._folder()
            assert found is not None
            assert found.is_relative_to(folder) if folder == disk else disks.kind_of(found) == "ext4"
    chosen = local_engine.configured(["--threads=1", "--memory=1GiB", f"--spill-folder={disk}"])
    assert chosen._folder() == disk
