"""Errors of steps quote nothing once they leave a worker.

In: steps that fail in each of their parts with a text that stands for a row. Out: the errors that a runner sees. Holds: neither
an error's text, nor what caused it, nor the context in which it was raised says more than public words. Not covered: what
runners write into logs themselves.
"""

import traceback
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pytest

from dp_pipelines.errors import DamagedInputError, DpError
from dp_pipelines.jobs.runners import error_masking

ROW = "alice@example.com"
PARTS = ("setup", "start_bundle", "process", "finish_bundle", "teardown")


class Fails(beam.DoFn):
    """Fails in one of its parts, quoting a row."""

    def __init__(self, part: str, ours: bool) -> None:
        super().__init__()
        self._part, self._ours = part, ours

    def _perhaps(self, part: str) -> None:
        if part != self._part:
            return
        try:
            raise KeyError(ROW)
        except KeyError as error:
            if self._ours:
                raise DamagedInputError("file 'a.csv': line 3 is damaged") from error
            raise ValueError(f"cannot read {ROW}") from error

    def setup(self) -> None:
        self._perhaps("setup")

    def start_bundle(self) -> None:
        self._perhaps("start_bundle")

    def process(self, element: Any) -> Iterator[Any]:
        yield element
        self._perhaps("process")

    def finish_bundle(self) -> None:
        self._perhaps("finish_bundle")

    def teardown(self) -> None:
        self._perhaps("teardown")


def failure(step: beam.DoFn, part: str) -> DpError:
    with pytest.raises(DpError) as caught:
        found = getattr(step, part)(*([1] if part == "process" else []))
        list(found or ())
    return caught.value


@pytest.mark.parametrize("part", PARTS)
def test_an_error_of_a_step_quotes_nothing_wherever_it_is_raised(part: str) -> None:
    error = failure(error_masking.Guarded(Fails(part, ours=False)), part)
    assert str(error) == "Fails: failed with ValueError; details are not shown, because they may quote rows"
    assert ROW not in "".join(traceback.format_exception(error))


@pytest.mark.parametrize("part", PARTS)
def test_an_error_of_ours_keeps_its_words_and_loses_its_cause(part: str) -> None:
    error = failure(error_masking.Guarded(Fails(part, ours=True)), part)
    assert str(error) == "file 'a.csv': line 3 is damaged"
    assert error.__cause__ is None
    assert ROW not in "".join(traceback.format_exception(error))


def test_without_the_guard_the_row_would_be_seen() -> None:
    with pytest.raises(ValueError, match=ROW):
        list(Fails("process", ours=False).process(1))


def test_what_a_step_gives_is_passed_on() -> None:
    step = error_masking.Guarded(Fails("nowhere", ours=False))
    step.setup()
    step.start_bundle()
    assert list(step.process(7)) == [7]
    assert list(step.finish_bundle()) == []
    step.teardown()
