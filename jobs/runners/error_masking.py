"""Masks the errors of steps, because some runners write errors to their own logs and pages.

In: a finished pipeline. Out: the same pipeline with each of our steps wrapped. Holds: an error of a step leaves the
worker as one of our own errors, with its public text, or as a message that names only classes. Not covered: errors of
Beam's own steps, which see shard numbers and Arrow bytes; what native code prints before it dies.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.pipeline import AppliedPTransform, PipelineVisitor

from dp_pipelines import interrupts
from dp_pipelines.errors import DpError
from dp_pipelines.transforms.beam_flow import UNUSED, AloneDoFn, StepDoFn

_END = object()
OURS = "dp_pipelines."
"""Steps are wrapped if the name of their module begins like this."""


class StepFailed(DpError):
    """A step failed. The message names its class and the class of the error."""


class Guarded(beam.DoFn):
    """A step of ours; its errors quote nothing.

    Args:
        step: does all the work.
    """

    def __init__(self, step: beam.DoFn) -> None:
        super().__init__()
        self._step = step

    def setup(self) -> None:
        """As the step does."""
        with self._quoting_nothing():
            self._step.setup()

    def start_bundle(self) -> None:
        """As the step does."""
        with self._quoting_nothing():
            self._step.start_bundle()

    def process(self, element: Any) -> Iterator[Any]:
        """What the step makes of an element."""
        return self._guarded(lambda: self._step.process(element))

    def finish_bundle(self) -> Iterator[Any]:
        """What the step has left."""
        return self._guarded(self._step.finish_bundle)

    def _guarded(self, make: Callable[[], Iterable[Any] | None]) -> Iterator[Any]:
        """Yield what a function makes; outside of the guard, for whoever takes it may close this generator."""
        with self._quoting_nothing():
            made = iter(make() or ())
        while True:
            with self._quoting_nothing():
                element = next(made, _END)
            if element is _END:
                return
            yield element

    def teardown(self) -> None:
        """As the step does."""
        with self._quoting_nothing():
            self._step.teardown()

    @contextlib.contextmanager
    def _quoting_nothing(self) -> Iterator[None]:
        try:
            yield
        except DpError as error:
            error.__cause__ = None  # the context is not shown either
            raise
        except BaseException as error:
            interrupts.end_if_asked()
            done = self._step.step if isinstance(self._step, StepDoFn) else self._step
            kind, step = type(error).__name__, type(done).__name__
            raise StepFailed(
                f"{step}: failed with {kind}; details are not shown, because they may quote rows"
            ) from None


class GuardedAlone(Guarded):
    """The same for a step with a bundle for each element, which it keeps."""

    def process(self, element: Any, unused: Any = UNUSED) -> Iterator[Any]:
        """What the step makes of an element."""
        yield from super().process(element)


class _Guard(PipelineVisitor):
    def visit_transform(self, transform_node: AppliedPTransform) -> None:
        transform = transform_node.transform
        if not isinstance(transform, beam.ParDo) or isinstance(transform.fn, Guarded):
            return
        if type(transform.fn).__module__.startswith(OURS):
            own = isinstance(transform.fn, AloneDoFn)
            transform.fn = GuardedAlone(transform.fn) if own else Guarded(transform.fn)


def guard(pipeline: beam.Pipeline) -> None:
    """Wrap each of our steps in a pipeline that is built but has not run."""
    pipeline.visit(_Guard())
