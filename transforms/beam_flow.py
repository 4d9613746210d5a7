"""Steps and flows on Beam: a step becomes a DoFn, a flow a PCollection.

In: a step; a PCollection. Out: the same graph in Beam's terms. Holds: what is heavy is computed in two threads, a few elements
ahead of the runner; results come in the order of their elements, and errors surface where the result would have. Not covered:
other engines (`jobs.runners.local`).
"""

import collections
import concurrent.futures
import os
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, cast

import apache_beam as beam
import pyarrow as pa
from apache_beam.coders import VarIntCoder
from apache_beam.io.filesystems import FileSystems
from apache_beam.transforms.userstate import BagStateSpec
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from dp_pipelines.engine import compressed
from dp_pipelines.engine.object_store import is_object, open_object
from dp_pipelines.errors import RequestError
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.steps.flow import Flow, Opener, Wiring
from dp_pipelines.steps.freed_memory import keep_freed_memory
from dp_pipelines.steps.step import AheadStep, GatheringStep, Step
from dp_pipelines.transforms.coder import register
from dp_pipelines.transforms.display import stage_facts
from dp_pipelines.transforms.program_words import for_programs

register()

THREADS = min(2, os.cpu_count() or 1)

UNUSED = beam.DoFn.StateParam(BagStateSpec("unused", VarIntCoder()))


class StepDoFn(beam.DoFn):
    """A step as a DoFn; what is heavy is computed ahead.

    Args:
        step: all that it does.
    """

    def __init__(self, step: Step) -> None:
        super().__init__()
        self.step = step

    def setup(self) -> None:
        """Start the threads."""
        if isinstance(self.step, AheadStep):
            keep_freed_memory()
            self._pool = concurrent.futures.ThreadPoolExecutor(THREADS)

    def start_bundle(self) -> None:
        """Nothing is under way, and nothing is gathered."""
        self._pending: collections.deque[concurrent.futures.Future[list[Any]]] = collections.deque()
        self._gathered: list[pa.Table] = []
        self._bytes = 0

    def process(self, element: Any) -> Iterator[Any]:
        """Begin with this element, and hand out what an earlier one has become."""
        step = self.step
        if isinstance(step, GatheringStep):
            self._gathered.append(element)
            self._bytes += step.bytes_of(element)
            if self._bytes >= step.enough:
                yield from self._begin_gathered(step)
        elif isinstance(step, AheadStep):
            yield from self._begin(step, step.load(element))
        else:
            yield from step.process(element)

    def finish_bundle(self) -> Iterator[WindowedValue]:
        """Hand out the rest."""
        if isinstance(self.step, GatheringStep) and self._gathered:
            for result in self._begin_gathered(self.step):
                yield _at_the_end(result)
        while self._pending:
            for result in _results(self._pending.popleft()):
                yield _at_the_end(result)

    def teardown(self) -> None:
        """Stop the threads."""
        if isinstance(self.step, AheadStep):
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _begin_gathered(self, step: GatheringStep) -> Iterator[Any]:
        gathered, self._gathered, self._bytes = self._gathered, [], 0
        yield from self._begin(step, gathered)

    def _begin(self, step: AheadStep, loaded: Any) -> Iterator[Any]:
        """Begin to compute, and hand out what was begun before, once more is under way than there are threads."""
        self._pending.append(self._pool.submit(step.compute, loaded))
        if len(self._pending) > THREADS:
            yield from _results(self._pending.popleft())


def _results(computation: "concurrent.futures.Future[list[Any]]") -> list[Any]:
    """Return what was computed. Tables may bring their types to workers alone, so errors about them are for programs here."""
    try:
        return computation.result()
    except RequestError as error:
        raise for_programs(error) from None


class AloneDoFn(StepDoFn):
    """The same with a bundle of its own for each element, on runners that would otherwise use one bundle per worker.

    Beam's runner for Flink (batch, 1.19) takes what a bundle sends to a shuffle only when the bundle has ended; until then it
    waits in the heap of the task manager, in at most a hundred messages of ten megabytes: one bundle for a whole input would need
    that much memory, and beyond a gigabyte it would wait for ever. Steps with state are given a bundle for each key, so this one
    asks for a state, which it never uses.
    """

    def process(self, element: Any, unused: Any = UNUSED) -> Iterator[Any]:
        """As the step does."""
        yield from super().process(element)


def do_fn(step: Step) -> StepDoFn:
    """The DoFn of a step."""
    return AloneDoFn(step) if step.alone else StepDoFn(step)


def open_anywhere(path: str) -> BinaryIO:
    """A file of any file system that Beam knows; one of S3 as every engine opens it."""
    if is_object(path):
        return open_object(path)
    return cast(BinaryIO, FileSystems.open(path, compression_type=compressed.of_beam(path)))


class BeamFlow(Flow):
    """A PCollection as a flow.

    Args:
        pcoll: the PCollection.
    """

    def __init__(self, pcoll: beam.PCollection[Any]) -> None:
        self.pcoll = pcoll

    @property
    def opener(self) -> Opener:
        """As Beam does, wherever files are; but for those of S3."""
        return open_anywhere

    def each(self, label: str, step: Step) -> "BeamFlow":
        """A ParDo."""
        return BeamFlow(self.pcoll | label >> beam.ParDo(do_fn(step)).with_output_types(step.gives))

    def by_key(self, label: str) -> "BeamFlow":
        """A GroupByKey."""
        return BeamFlow(self.pcoll | label >> beam.GroupByKey())

    def spread(self, label: str) -> "BeamFlow":
        """A Reshuffle."""
        return BeamFlow(self.pcoll | label >> beam.Reshuffle())

    def with_others(self, label: str, *others: Flow) -> "BeamFlow":
        """A Flatten."""
        return BeamFlow([self.pcoll, *_pcolls(others)] | label >> beam.Flatten())

    def known(self, label: str, elements: Sequence[Any], gives: Any) -> "BeamFlow":
        """A Create."""
        made = self.pcoll.pipeline | label >> beam.Create(elements, reshuffle=False).with_output_types(gives)
        return BeamFlow(made)

    def inside(self, label: str, wiring: Wiring, *others: Flow, shown: StagePlan | None = None) -> "BeamFlow":
        """A composite transform."""
        given = (self.pcoll, *_pcolls(others))
        return BeamFlow((given if others else self.pcoll) | label >> Wired(wiring, shown))


def beginning(pipeline: beam.Pipeline) -> BeamFlow:
    """The place of a pipeline where sources begin."""
    return BeamFlow(beam.pvalue.PBegin(pipeline))


class Wired(beam.PTransform):
    """A graph of steps as a transform.

    Args:
        wiring: called with the flow of each input.
        shown: the stage whose public facts are display data.
    """

    def __init__(self, wiring: Wiring, shown: StagePlan | None = None) -> None:
        super().__init__()
        self._wiring, self._shown = wiring, shown

    def display_data(self) -> dict[str, Any]:
        """What pages of runners show."""
        return {} if self._shown is None else stage_facts(self._shown)

    def expand(self, pcolls: Any) -> beam.PCollection[Any]:
        """The graph."""
        given = pcolls if isinstance(pcolls, tuple) else (pcolls,)
        return collection_of(self._wiring(*(BeamFlow(pcoll) for pcoll in given)))


def collection_of(flow: Flow) -> beam.PCollection[Any]:
    """The PCollection of a flow of Beam."""
    return _pcolls([flow])[0]


def _pcolls(flows: Sequence[Flow]) -> list[beam.PCollection[Any]]:
    found = []
    for flow in flows:
        assert isinstance(flow, BeamFlow)
        found.append(flow.pcoll)
    return found


def _at_the_end(result: Any) -> WindowedValue:
    """What `finish_bundle` hands out."""
    window = GlobalWindow()
    return WindowedValue(result, window.max_timestamp(), [window])
