"""A run on this machine, however it ends, leaves nothing in its process and nothing on the disk; a spill disk that fills is told.

In: the shop, hardly any memory, so that all rows go through a file. Out: threads, open files and files after the command. Holds:
what is said of a disk has no size. Not covered: a process that is killed (`test_kills`).
"""

import pathlib
import tempfile
import threading
from collections.abc import Callable

import pyarrow as pa
import pytest

from dp_pipelines import interrupts
from dp_pipelines.jobs.runners import local_engine, local_options, shuffle
from dp_pipelines.ledger import events
from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from dp_pipelines.release import staging
from dp_pipelines.steps.aggregate import ToPartials, ToShards
from tests.engines import cases
from tests.helpers.left_behind import nothing_left, only_new_objects_are_collected  # noqa: F401 - a fixture
from tests.helpers.small_disks import SmallDisk
from tests.jobs.conftest import Said, Shop

Call = Callable[..., Said]

SECRET = "4711 of Eve"


@pytest.fixture
def cramped(monkeypatch: pytest.MonkeyPatch) -> list[pathlib.Path]:
    """Nothing may wait in memory, and every file system passes for a disk. Gives the folders that rows went to."""
    folders: list[pathlib.Path] = []
    real = shuffle._private_file

    def noting(folder: pathlib.Path) -> int:
        folders.append(folder)
        return real(folder)

    monkeypatch.setattr(shuffle, "_private_file", noting)
    monkeypatch.setattr(local_options.LocalOptions, "waiting_bytes", property(lambda self: 1))
    for module in (local_options, local_engine):
        monkeypatch.setattr(module, "IN_MEMORY", ())
    return folders


def leaves_nothing(shop: Shop, ends: Callable[[], None]) -> None:
    """The command leaves no thread, no open file, no temporary file, and what it publishes alone."""
    with tempfile.TemporaryDirectory() as temporary, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", temporary)
        with nothing_left(pathlib.Path(temporary)):
            ends()
    assert [name for name in shop.left() if name.partition("/")[0] not in ("out", "disk")] == []


@pytest.mark.parametrize("ledger", [(), ("--ledger", "none")], ids=["ledger", "no ledger"])
def test_a_run_leaves_its_release_and_nothing_else(
    shop: Shop, call: Call, cramped: list[pathlib.Path], ledger: tuple[str, ...]
) -> None:
    def ends() -> None:
        assert call("run", shop.job, "--output", shop.folder / "out", "--threads=2", *ledger).code == 0

    leaves_nothing(shop, ends)
    assert cramped
    assert sorted(path.name for path in (shop.folder / "out").iterdir()) == [
        "manifest.json",
        "report.html",
        "weekly.parquet",
    ]


@pytest.mark.parametrize("error", [ValueError, MemoryError, pa.ArrowInvalid, RecursionError])
@pytest.mark.parametrize("step", [ToShards, ToPartials])
def test_a_step_that_fails_in_a_thread_leaves_nothing_and_quotes_nothing(
    shop: Shop,
    call: Call,
    cramped: list[pathlib.Path],
    monkeypatch: pytest.MonkeyPatch,
    step: type,
    error: type[Exception],
) -> None:
    def fails(self: object, element: object) -> None:
        raise error(SECRET)

    monkeypatch.setattr(step, "compute", fails)

    def ends() -> None:
        said = call("run", shop.job, "--output", shop.folder / "out", "--ledger", "none", "--threads=2")
        assert (said.code, said.out) == (1, "")
        assert said.err == (
            "error: the pipeline failed in stage 'weekly'; nothing was published, and details are not shown, "
            "because they may quote rows\n"
        )

    leaves_nothing(shop, ends)


def test_a_damaged_row_group_is_told_by_its_file_and_leaves_nothing(
    tmp_path: pathlib.Path, call: Call, cramped: list[pathlib.Path]
) -> None:
    job, damaged = cases.a_damaged_file(tmp_path)
    shop = Shop(tmp_path)

    def ends() -> None:
        said = call("run", job, "--output", tmp_path / "out", "--ledger", "none", "--threads=3")
        assert (said.code, said.out) == (1, "")
        assert said.err == (
            f"error: file {str(damaged)!r}: a row group cannot be read; it is damaged; nothing was published\n"
        )

    leaves_nothing(shop, ends)


def test_a_run_that_is_interrupted_leaves_nothing(
    shop: Shop, call: Call, cramped: list[pathlib.Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*given: object) -> None:
        assert threading.current_thread() is not threading.main_thread()
        interrupts.note()
        raise KeyboardInterrupt

    monkeypatch.setattr(staging, "write_in_order", interrupted)

    def ends() -> None:
        said = call("run", shop.job, "--output", shop.folder / "out", "--threads=2", "--ledger", "none")
        assert (said.code, said.err) == (1, "error: interrupted; run the same command again to continue\n")

    leaves_nothing(shop, ends)


def test_a_spill_disk_that_fills_up_is_told_without_a_size_and_the_same_command_mends_it(
    shop: Shop, call: Call, cramped: list[pathlib.Path], small_disk: SmallDisk
) -> None:
    command = ("run", shop.job, "--output", shop.folder / "out", "--spill-folder", small_disk.path, "--threads=2")

    def full() -> None:
        said = call(*command)
        assert (said.code, said.out) == (1, "")
        assert said.err == (
            f"error: folder {str(small_disk.path)!r}: the disk is full; nothing was published; free some space on it, "
            "or choose another folder with --spill-folder; then run the same command again\n"
        )

    small_disk.fill()
    leaves_nothing(shop, full)
    small_disk.free()
    assert call(*command).code == 0
    assert set(cramped) == {small_disk.path}
    assert small_disk.names() == []
    kinds = [event.kind for event in Ledger.open(str(shop.folder / DEFAULT_NAME)).history]
    assert [kinds.count(kind) for kind in (events.RUN_RESERVED, events.RUN_PUBLISHED)] == [1, 1]
