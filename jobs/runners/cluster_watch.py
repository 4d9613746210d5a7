"""Says what a Flink cluster lacks while a run waits for it, and what it lacked when the run failed.

In: the cluster's address, how many slots the run asks for, the name of its job. Out: notes for the user, once a minute; one
finding at the end. Holds: a watch never fails a run, and says nothing once its block has ended; only the address that was given
and numbers of slots are told. Not covered: ending a run that waits, which Flink does (docs/runners.md); the Flink inside a job
server; clusters behind a password.
"""

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from dp_pipelines.jobs.runners import cluster_checks
from dp_pipelines.jobs.runners.runner_rules import Setup

START_SECONDS = 5.0
"""After which a cluster is looked at for the first time: small runs are over by then."""

LOOK_SECONDS = 10.0
"""Between two looks. What is lacking at one look alone, such as between two tasks of a job, is not worth a word."""

REMINDER_SECONDS = 60.0

AT_WORK = ("running", "initializing", "deploying")
"""What Flink calls tasks that have a slot."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lack:
    """What a cluster lacks.

    Args:
        said: in public words.
        hint: what to do.
        waits: whether the run waits for it.
    """

    said: str
    hint: str
    waits: bool = True

    @property
    def note(self) -> str:
        """For whoever waits.

        >>> Lack(said="the cluster at flink:8081 has 1 of 2 slots", hint="start task managers").note
        'the cluster at flink:8081 has 1 of 2 slots; the run waits'
        """
        return f"{self.said}; the run {'waits' if self.waits else 'goes on with these'}"


class Watch:
    """Looks at a cluster until the end of its block, from a thread.

    Args:
        cluster: its address, with a scheme; empty: there is nothing to look at.
        slots: how many the run asks for.
        job: the job's name; empty if it has none of its own.
        tell: says something to the user; None: nobody listens.
    """

    def __init__(self, cluster: str, slots: int, job: str = "", tell: Callable[[str], None] | None = None) -> None:
        self._cluster, self._slots, self._job, self._tell = cluster, slots, job, tell
        self._address = cluster.partition("://")[2]
        self._over, self._speaking = threading.Event(), threading.Lock()
        self._listed = False
        self._lack: Lack | None = None
        self._told: float | None = None

    def __enter__(self) -> "Watch":
        if self._cluster:
            threading.Thread(target=self._watch, name="dp-cluster-watch", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._speaking:  # whoever waits for the thread would wait for the network
            self._over.set()

    def at_the_end(self) -> Lack | None:
        """What the cluster lacks now that the job has failed; None where that is nothing, or not known."""
        if not self._cluster:
            return None
        with contextlib.suppress(Exception):  # as in `_watch`
            before, listed = self._lack if self._told is not None else None, self._listed
            found, jobs = self._look()
            if found is None and listed and jobs is not None and self._job not in jobs:
                said = f"the cluster at {self._address} was started anew and does not know the job any more"
                return Lack(said=said, hint="see that its JobManager stays up")
            return found or before  # a job that has ended waits for no slots: what was seen before counts
        return None

    def _watch(self) -> None:
        pause = START_SECONDS
        while not self._over.wait(pause):
            pause = LOOK_SECONDS
            with contextlib.suppress(Exception):  # whatever it is that answers there, the run does not end of it
                self.heard(self._look()[0], time.monotonic())

    def heard(self, found: Lack | None, now: float) -> None:
        """Take in one look.

        Args:
            found: what is lacking.
            now: seconds of a clock.
        """
        before, self._lack = self._lack, found
        if found is None:
            if self._told is not None:
                self._told = None
                self._say(f"the cluster at {self._address} has what the run needs again")
        elif before is not None and (self._told is None or now >= self._told + REMINDER_SECONDS):
            self._told = now
            self._say(found.note)

    def _say(self, text: str) -> None:
        with self._speaking:
            if self._tell is not None and not self._over.is_set():
                self._tell(text)

    def _look(self) -> tuple[Lack | None, Mapping[str, Mapping[str, Any]] | None]:
        """What is lacking, and the cluster's jobs by name; None where it does not answer."""
        overview = cluster_checks.rest(self._cluster, "/overview")
        page = cluster_checks.rest(self._cluster, "/jobs/overview")
        if overview is None or page is None:
            said = f"nothing answers at {self._address}, where the cluster's JobManager was"
            return Lack(said=said, hint=f"start the JobManager at {self._address} again"), None
        jobs = {str(job["name"]): job for job in page["jobs"]}
        self._listed = self._listed or self._job in jobs
        total, free = int(overview["slots-total"]), int(overview["slots-available"])
        tasks = [jobs[self._job]["tasks"]] if self._job in jobs else []
        at_work = any(one.get(state, 0) for one in tasks for state in AT_WORK)
        hint = f"start task managers until the cluster has {self._slots} slots, or ask for fewer with --parallelism"
        if total < self._slots:
            said = f"the cluster at {self._address} has {total} of {self._slots} slots"
            return Lack(said=said, hint=hint, waits=not at_work), jobs
        if free < self._slots and not at_work and any(one.get("scheduled", 0) for one in tasks):
            said = (
                f"{free} of {total} slots of the cluster at {self._address} are free, and the run needs {self._slots}"
            )
            return Lack(said=said, hint="wait for other jobs to end, or start more task managers"), jobs
        return None, jobs


def watch(setup: Setup, options: Mapping[str, Any], job: str, tell: Callable[[str], None] | None) -> Watch:
    """A watch over the cluster of a run; over nothing where there is no Flink that one could ask.

    Args:
        setup: how the runner is reached.
        options: of Beam, by name.
        job: the job's name there; empty if it has none of its own.
        tell: says something to the user; None: nobody listens.
    """
    return Watch(setup.cluster, cluster_checks.slots_asked(options), job, tell)
