"""The engine of one machine: the graph of a job on threads of this process, without Beam.

In: a graph of steps. Out: its steps carried out. Holds: what each step computes is what it computes on any engine; the values of
a key come in one order, whatever threads do; rows wait in memory up to a limit, beyond it in a private file; an error leaves a
thread as one whose text is public, or as a message that names only the step. Not covered: other machines, and data larger than
the disk.
"""

import collections
import functools
import operator
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO, ClassVar, cast

import pyarrow as pa

from dp_pipelines import interrupts
from dp_pipelines.disk_errors import DiskError
from dp_pipelines.engine import compressed
from dp_pipelines.engine.object_store import is_object, open_object
from dp_pipelines.errors import DpError
from dp_pipelines.jobs.runners.shuffle import Held, Order, Shuffle, SpillFailed
from dp_pipelines.jobs.runners.workers import Crew, Stopped
from dp_pipelines.jobs.terminal.progress import READING, Progress, heard
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.steps.flow import Flow, Opener, Wiring
from dp_pipelines.steps.freed_memory import keep_freed_memory
from dp_pipelines.steps.read_files import open_local
from dp_pipelines.steps.step import AheadStep, GatheringStep, Step

_END = object()
Emit = Callable[[Any], None]

PACKED = (".xz", ".lzma", ".snappy", ".deflate")
"""Endings of files that Beam unpacks."""


class LocalStepFailed(DpError):
    """A step failed. The message names the step, and what one of our own errors says; `pipelines.public_part` reads it."""


def open_here(path: str) -> BinaryIO:
    """A file for reading. Beam is loaded for all that it can open, and neither this machine nor Arrow can."""
    if is_object(path):
        return open_object(path)
    if "://" not in path and not path.endswith(PACKED):
        return open_local(path)
    from apache_beam.io.filesystems import FileSystems

    return cast(BinaryIO, FileSystems.open(path, compression_type=compressed.of_beam(path)))


class LocalFlow(Flow):
    """A collection in a graph of this process.

    Args:
        graph: of which it is a part.
        label: of the step that makes it.
        parents: what it is made of.
        step: what makes its elements of theirs; None: they are the same.
        elements: that are known before; None: it has parents.
        waits: `shuffle` where all elements of its parents must be there before it has any, by key; `list` where each of them
            is a task; empty where it has them at once.
    """

    own_threads: ClassVar[bool] = True

    def __init__(
        self,
        graph: "LocalGraph",
        label: str,
        parents: Sequence["LocalFlow"] = (),
        *,
        step: Step | None = None,
        elements: Sequence[Any] | None = None,
        waiting: "type[Shuffle] | type[list[Any]] | None" = None,
    ) -> None:
        self.graph, self.parents, self.step, self.elements, self.waiting = graph, parents, step, elements, waiting
        self.label = "/".join([*graph.scope, label])
        graph.flows.append(self)

    @property
    def opener(self) -> Opener:
        """As this machine does."""
        return open_here

    def each(self, label: str, step: Step) -> "LocalFlow":
        """A step."""
        return LocalFlow(self.graph, label, [self], step=step, waiting=list if step.alone else None)

    def by_key(self, label: str) -> "LocalFlow":
        """A shuffle."""
        return LocalFlow(self.graph, label, [self], waiting=Shuffle)

    def spread(self, label: str) -> "LocalFlow":
        """The same elements, each as a task."""
        return LocalFlow(self.graph, label, [self], waiting=list)

    def with_others(self, label: str, *others: Flow) -> "LocalFlow":
        """All of them."""
        return LocalFlow(self.graph, label, [self, *_local(others)])

    def known(self, label: str, elements: Sequence[Any], gives: Any) -> "LocalFlow":
        """Elements that are known before."""
        return LocalFlow(self.graph, label, elements=list(elements))

    def inside(self, label: str, wiring: Wiring, *others: Flow, shown: StagePlan | None = None) -> "LocalFlow":
        """What `wiring` makes, with this label before those of its steps."""
        self.graph.scope.append(label)
        try:
            (made,) = _local([wiring(self, *others)])
        finally:
            self.graph.scope.pop()
        return made


class LocalGraph:
    """A graph that threads of this process carry out.

    Args:
        threads: how many.
        memory: bytes of what may wait between steps in memory.
        folder: for what is beyond; None: nothing may be.
        progress: is told each step.
        files: how many are read.
        stages: names of the job's stages.
    """

    def __init__(
        self,
        *,
        threads: int,
        memory: int,
        folder: pathlib.Path | None,
        progress: Progress,
        files: int = 0,
        stages: Sequence[str] = (),
    ) -> None:
        self.threads, self._progress, self._files, self._stages = threads, progress, files, list(stages)
        self._held = Held(memory, folder)
        self.flows: list[LocalFlow] = []
        self.scope: list[str] = []
        self._consumers: dict[LocalFlow, list[LocalFlow]] = collections.defaultdict(list)
        self._waiting: dict[LocalFlow, Any] = {}

    @property
    def start(self) -> LocalFlow:
        """Where sources begin."""
        return LocalFlow(self, "Start", elements=[])

    def run(self) -> None:
        """Carry out all steps.

        Raises:
            LocalStepFailed: a step failed.
            DiskError, SpillFailed: rows that did not fit into memory found no place.
        """
        for flow in self.flows:
            for parent in flow.parents:
                self._consumers[parent].append(flow)
            if flow.waiting is not None:
                self._waiting[flow] = self._held.shuffle() if flow.waiting is Shuffle else []
        roots = [flow for flow in self.flows if (flow.elements or flow.waiting is not None) and self._has_use(flow)]
        keep_freed_memory()
        cores = pa.cpu_count()
        pa.set_cpu_count(1)  # these threads are the parallelism; those of Arrow would only stand in their way
        try:
            with heard(self._progress):
                self._progress.begin(len(roots), self._files)
                for number, root in enumerate(roots):
                    self._progress.step(root.label, self._words(root.label))
                    self._run_from(root, number)
        finally:
            pa.set_cpu_count(cores)
            self._held.close()

    def _has_use(self, flow: LocalFlow) -> bool:
        return bool(self._consumers[flow]) or flow.step is not None

    def _words(self, label: str) -> str:
        """What a step does."""
        return READING if label.startswith("Read/") else next((s for s in self._stages if f"{s}/" in label), "")

    def _run_from(self, root: LocalFlow, number: int) -> None:
        """All steps from here to where elements wait again."""
        waiting = self._waiting.get(root)
        if isinstance(waiting, Shuffle):
            tasks = waiting.tasks
        else:
            elements = root.elements or [element for _, element in sorted(waiting or (), key=operator.itemgetter(0))]
            tasks = list(enumerate(elements))
        crew = Crew(self.threads, tasks)
        crew.run(lambda: _Bundle(self, root, crew, number))
        if isinstance(waiting, Shuffle):
            waiting.close()
        self._waiting.pop(root, None)

    def consumers(self, flow: LocalFlow) -> list[LocalFlow]:
        """What is made of a collection."""
        return self._consumers[flow]

    def waiting(self, flow: LocalFlow) -> Any:
        """Where elements wait for a collection."""
        return self._waiting[flow]


class _Bundle:
    """What one thread does from a root on: it keeps the tables that it gathers.

    Whatever it makes has a place in an order that threads do not decide, unless it was gathered: floats are added in that order.
    """

    def __init__(self, graph: LocalGraph, root: LocalFlow, crew: Crew, number: int) -> None:
        self._graph, self._root, self._crew, self._number = graph, root, crew, number
        self._within: Order = ()
        self._made_so_far = 0
        self._emits: dict[LocalFlow, Emit] = {}
        self._computed: dict[LocalFlow, Emit] = {}
        self._last: list[Callable[[], None]] = []
        waiting = graph.waiting(root) if root.waiting is not None else None
        self._shuffle = waiting if isinstance(waiting, Shuffle) else None
        self._emit = self._after(root) if root.step is None else self._stepping(root)

    def begin(self, task: tuple[int, Any]) -> None:
        """An element of the root, with its number."""
        number, element = task
        self._within, self._made_so_far = (self._number, number), 0
        self._emit(element if self._shuffle is None else (element, _Values(self._shuffle, element)))

    def take_over(self, work: tuple[LocalFlow, Any, Order]) -> None:
        """What a step of another thread has loaded, and its place there."""
        flow, loaded, self._within = work
        self._made_so_far = 0
        if flow not in self._computed:
            self._into(flow)
        self._computed[flow](loaded)

    def finish(self) -> None:
        """Compute what is gathered."""
        for last in reversed(self._last):  # a step comes after those that take what it makes
            last()

    def _place(self) -> Order:
        """The place of what comes next."""
        self._made_so_far += 1
        return (*self._within, self._made_so_far)

    def _after(self, flow: LocalFlow) -> Emit:
        """Hands an element to all that is made of a collection."""
        emits = [self._into(consumer) for consumer in self._graph.consumers(flow)]
        if len(emits) == 1:
            return emits[0]

        def to_all(element: Any) -> None:
            for emit in emits:
                emit(element)

        return to_all

    def _into(self, flow: LocalFlow) -> Emit:
        """Takes an element that is handed to a collection."""
        if flow not in self._emits:
            if flow.waiting is not None:
                self._emits[flow] = self._keeping(self._graph.waiting(flow))
            elif flow.step is None:
                self._emits[flow] = self._after(flow)
            else:
                self._emits[flow] = self._stepping(flow)
        return self._emits[flow]

    def _keeping(self, waiting: Any) -> Emit:
        """Keeps an element where it waits."""

        def keep(element: Any) -> None:
            if isinstance(waiting, Shuffle):
                waiting.add(element, self._place())
            else:
                waiting.append((self._place(), element))

        return keep

    def _stepping(self, flow: LocalFlow) -> Emit:
        """Carries out a step."""
        step = flow.step
        assert step is not None
        emit = self._after(flow)
        if isinstance(step, GatheringStep):
            return self._gathering(flow, step, emit)
        if isinstance(step, AheadStep):
            return self._ahead(flow, step, emit)

        def plainly(element: Any) -> None:
            for made in self._made(flow, functools.partial(step.process, element)):
                emit(made)

        return plainly

    def _ahead(self, flow: LocalFlow, step: AheadStep, emit: Emit) -> Emit:
        def compute(loaded: Any) -> None:
            for made in self._made(flow, functools.partial(step.compute, loaded)):
                emit(made)

        def begin(element: Any) -> None:
            if isinstance(element, pa.Table):
                if not self._crew.hand_over((flow, element, self._place())):
                    compute(element)
                return
            # A group is loaded by the thread that computes it.
            for made in self._made(flow, functools.partial(step.process, element)):
                emit(made)

        self._computed[flow] = compute
        return begin

    def _gathering(self, flow: LocalFlow, step: GatheringStep, emit: Emit) -> Emit:
        gathered: list[Any] = []
        size = 0

        def compute(loaded: list[Any]) -> None:
            for made in self._made(flow, functools.partial(step.compute, loaded)):
                emit(made)

        def gather(element: Any) -> None:
            nonlocal gathered, size
            gathered.append(element)
            size += step.bytes_of(element)
            if size >= step.enough:
                ready, gathered, size = gathered, [], 0
                if not self._crew.hand_over((flow, ready, self._place())):
                    compute(ready)

        def last() -> None:
            nonlocal gathered
            ready, gathered = gathered, []
            if ready:
                compute(ready)

        self._computed[flow] = compute
        self._last.append(last)
        return gather

    def _made(self, flow: LocalFlow, make: Callable[[], Iterable[Any]]) -> Iterator[Any]:
        """What a step makes of an element; its errors quote nothing but what was public."""
        self._crew.check()
        made: Iterator[Any] | None = None
        while True:
            try:
                made = iter(make()) if made is None else made
                element = next(made, _END)
            except (Stopped, LocalStepFailed, SpillFailed, DiskError):
                raise
            except DpError as error:
                raise LocalStepFailed(f"{error} [while running '{flow.label}']") from None
            except BaseException as error:
                interrupts.end_if_asked()
                raise LocalStepFailed(f"{type(error).__name__} [while running '{flow.label}']") from None
            if element is _END:
                return
            yield element  # outside of the guard: whoever takes it may close this generator
            self._crew.check()


class _Values:
    """The values of a key, loaded when they are asked for, once: nobody holds them after that."""

    def __init__(self, shuffle: Shuffle, key: Any) -> None:
        self._shuffle: Shuffle | None = shuffle
        self._key = key

    def __iter__(self) -> Iterator[Any]:
        if self._shuffle is None:  # a second time there would be none, and nobody would know
            raise RuntimeError("the values of a key are read once")
        shuffle, self._shuffle = self._shuffle, None
        return shuffle.each(self._key)


def _local(flows: Iterable[Flow]) -> list[LocalFlow]:
    found = []
    for flow in flows:
        assert isinstance(flow, LocalFlow)
        found.append(flow)
    return found
