"""Steps of a job at which a worker stops, so that it can be killed in the middle; and a record of every draw.

In: a folder that the test and all workers see. Out: in it, a file for each worker that has reached an armed step, for each
beginning of a step, and for each draw that was made, seen or not. Holds: the product has no switch for this: methods are wrapped
from outside, in the workers' own processes. Tests only.
"""

import contextlib
import functools
import json
import os
import pathlib
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from dp_pipelines.steps import aggregate, draw_release, read_files, write_examples, write_stage
from tests.helpers import forks

STEPS = ("read", "shard", "bound", "sum", "release", "write")
"""Where a worker can stop, in the order of the rows' way; `examples` too, where a model is trained."""

PATIENCE = 300.0
"""Seconds after which a worker that stopped goes on by itself."""

_BORN = [0.0]
"""When this worker began: of all processes of a machine by the same clock."""

Standing = dict[str, Any]
"""A worker at a step: its process `worker`, the `parent` that the engine started it from, when it `reached` the step."""


def plant(place: str) -> None:
    """Have the steps of this process stop where they are armed, and record what is drawn.

    Args:
        place: the folder.
    """
    _BORN[0] = time.monotonic()
    folder = pathlib.Path(place)
    _before(read_files.ReadRowGroups, "process", functools.partial(_reached, folder, "read"))
    _before(aggregate.ToShards, "compute", functools.partial(_reached, folder, "shard"))
    _before(aggregate.ToPartials, "compute", functools.partial(_reached, folder, "bound"))
    _before(draw_release.DrawRelease, "totals", functools.partial(_reached, folder, "sum"))
    _before(write_examples.WriteShard, "process", functools.partial(_reached, folder, "examples"))
    drawing, writing = draw_release.DrawRelease.process, write_stage.WriteStage.process

    def drawn(self: draw_release.DrawRelease, element: tuple[int, Any]) -> Iterator[tuple[int, pa.Table]]:
        for key, table in drawing(self, element):
            if table.column_names != [draw_release.RECEIPT]:
                _record(folder, self._stage.name, element[0], table)
                _reached(folder, "release")
            yield key, table

    def written(self: write_stage.WriteStage, element: Any) -> Iterator[str]:
        for path in writing(self, element):
            _reached(folder, "write")
            yield path

    draw_release.DrawRelease.process = drawn  # type: ignore[method-assign]
    write_stage.WriteStage.process = written  # type: ignore[method-assign]


def _before(owner: type, name: str, call: Callable[[], None]) -> None:
    real = getattr(owner, name)

    @functools.wraps(real)
    def wrapped(*arguments: Any) -> Any:
        call()
        return real(*arguments)

    setattr(owner, name, wrapped)


def _reached(folder: pathlib.Path, step: str) -> None:
    """Say that a step begins; stop there if this is the first worker since it was armed, and not older than was asked."""
    here = {"worker": os.getpid(), "parent": int(os.environ.get(forks.ENGINE, os.getppid())), "reached": time.time()}
    own = folder / f"{uuid.uuid4().hex}.own"
    own.write_text(json.dumps(here))
    try:
        asked = json.loads((folder / f"{step}.armed").read_text())
    except FileNotFoundError:
        asked = None
    if asked is not None and asked["after"] < _BORN[0]:
        with contextlib.suppress(FileExistsError):
            os.link(own, folder / f"{step}.{asked['time']}.reached")
            end = time.monotonic() + PATIENCE
            while time.monotonic() < end and not (folder / f"{step}.on").exists():
                time.sleep(0.05)
            (folder / f"{step}.{asked['time']}.left").touch()
    own.rename(folder / f"{step}.{own.stem}.begun")


def _record(folder: pathlib.Path, stage: str, place: int, table: pa.Table) -> None:
    own = folder / f"{uuid.uuid4().hex}.own"
    pa.parquet.write_table(table, own)
    own.rename(folder / f"{stage}-{place}-{own.stem}.draw")


class Points:
    """The side of the test.

    Args:
        folder: empty.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder, self._times = folder, dict[str, int]()

    def arm(self, step: str, after: float = 0.0) -> None:
        """Have the next worker that reaches a step stop there, whether or not one has stopped there before.

        Args:
            step: one of `STEPS`, or `examples`.
            after: pass workers by that were born before.
        """
        self._times[step] = self._times.get(step, 0) + 1
        self._ask(step, after)

    def take_any(self, step: str) -> None:
        """Let no worker pass by any more, whenever it was born."""
        self._ask(step, 0.0)

    def reached(self, step: str) -> Standing | None:
        """The worker that has stopped at a step since it was armed last; None while there is none."""
        path = self.folder / f"{step}.{self._times[step]}.reached"
        return json.loads(path.read_text()) if path.exists() else None

    def killed(self, step: str) -> bool:
        """Kill the worker that stands at a step; whether it died of that and in that step, and not of what its engine did."""
        worker = self._standing(step)["worker"]
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)
        died, end = self.folder / f"{worker}.died", time.monotonic() + 30
        while not died.exists():
            assert time.monotonic() < end, f"nobody has written down of what worker {worker} died"
            time.sleep(0.01)
        return int(died.read_text()) == signal.SIGKILL and not self._left(step)

    def stands(self, step: str) -> bool:
        """Whether the worker that was found at a step is still alive and there."""
        return not (self.folder / f"{self._standing(step)['worker']}.died").exists() and not self._left(step)

    def begun_since(self, step: str, since: float) -> bool:
        """Whether a step has come to its work in some worker after some time, in seconds since 1970."""
        found = [json.loads(path.read_text()) for path in self.folder.glob(f"{step}.*.begun")]
        return any(one["reached"] > since for one in found)

    def _ask(self, step: str, after: float) -> None:
        own = self.folder / f"{step}.own"
        own.write_text(json.dumps({"time": self._times[step], "after": after}))
        own.rename(self.folder / f"{step}.armed")

    def _standing(self, step: str) -> Standing:
        found = self.reached(step)
        assert found is not None, f"nobody stands at {step}"
        return found

    def _left(self, step: str) -> bool:
        return (self.folder / f"{step}.{self._times[step]}.left").exists()

    def go_on(self) -> None:
        """Let all workers go on that still stand somewhere."""
        for step in (*STEPS, "examples"):
            (self.folder / f"{step}.on").touch()

    def draws(self, stage: str) -> dict[int, list[pa.Table]]:
        """All draws of a stage by place, in the order in which they were made, whether any of it was seen or not."""
        found: dict[int, list[pa.Table]] = {}
        for path in sorted(self.folder.glob(f"{stage}-*.draw"), key=lambda path: path.stat().st_mtime_ns):
            found.setdefault(int(path.name.split("-")[1]), []).append(pa.parquet.read_table(path))
        return found


def mixed(published: pa.Table, draws: dict[int, list[pa.Table]], keys: list[str]) -> list[Any]:
    """What in a published table is not one whole draw: places, and partitions that no place has drawn.

    Args:
        published: what everybody sees.
        draws: by place, as `Points.draws` gives them.
        keys: the partition columns.
    """
    seen = {_key(row, keys): row for row in published.to_pylist()}
    wrong: list[Any] = []
    for place, tables in draws.items():
        possible = [{_key(row, keys): row for row in table.to_pylist()} for table in tables]
        of_place = {key for draw in possible for key in draw}
        if {key: row for key, row in seen.items() if key in of_place} not in possible:
            wrong.append(place)
    drawn = {_key(row, keys) for tables in draws.values() for table in tables for row in table.to_pylist()}
    return wrong + [key for key in seen if key not in drawn]


def _key(row: dict[str, Any], keys: list[str]) -> tuple[Any, ...]:
    return tuple(row[name] for name in keys)
