"""The local runner as an engine: threads of this process, an embedded default for one machine.

In: its options. Out: graphs that this process carries out. Holds: it needs no Beam, no other process and no network. Not covered:
more than one machine.
"""

import pathlib
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from dp_pipelines.jobs.runners import local_options, runner_rules
from dp_pipelines.jobs.runners.engines import Engine
from dp_pipelines.jobs.runners.local import LocalFlow, LocalGraph
from dp_pipelines.jobs.runners.local_options import IN_MEMORY, LocalOptions
from dp_pipelines.jobs.terminal.progress import Progress
from dp_pipelines.ledger import disks


class LocalEngine(Engine):
    """Threads of this process.

    Args:
        options: how many, and what they may take.
    """

    def __init__(self, options: LocalOptions) -> None:
        super().__init__(runner_rules.Setup(name="local"))
        self.options = options

    @property
    def given(self) -> Mapping[str, Any]:
        """All options by name; each thread is a slot."""
        return {
            "parallelism": self.options.threads,
            "num_shards": self.options.num_shards,
            "memory": self.options.memory,
        }

    def pipeline(self, progress: Progress, files: int = 0, stages: Sequence[str] = ()) -> LocalGraph:
        """An empty graph."""
        return LocalGraph(
            threads=self.options.threads,
            memory=self.options.waiting_bytes,
            folder=self._folder(),
            progress=progress,
            files=files,
            stages=stages,
        )

    def start(self, pipeline: LocalGraph) -> LocalFlow:
        """Where the sources of a graph begin."""
        return pipeline.start

    def run(self, pipeline: LocalGraph, progress: Progress) -> None:
        """Carry out a graph."""
        pipeline.run()

    def _folder(self) -> pathlib.Path | None:
        """Where rows go that do not fit into memory: a disk, preferably that of the attempt."""
        if self.options.spill_folder is not None:
            return self.options.spill_folder
        places = [self._attempt.folder] if self._attempt is not None else []
        places += [pathlib.Path(tempfile.gettempdir()), pathlib.Path("/var/tmp")]  # noqa: S108 - files there have no names
        return next((place for place in places if place.is_dir() and disks.kind_of(place) not in IN_MEMORY), None)


def configured(arguments: Sequence[str]) -> LocalEngine:
    """The engine for some options.

    Raises:
        RequestError: one is wrong by public facts.
    """
    return LocalEngine(local_options.read(arguments))
