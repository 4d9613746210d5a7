"""The local runner beside Beam's: the same statistics before the noise, with any number of threads and no memory to speak of.

In: `cases`. Out: exact statistics. Holds: threads, spilled rows and their order change no bit. Not covered: noise.
"""

import dataclasses
import pathlib
from collections.abc import Callable

import pytest

from dp_pipelines.jobs.runners import local, local_engine, local_options, shuffle
from tests.engines import cases, exact
from tests.engines.cases import Case
from tests.engines.conftest import Compute
from tests.engines.exact import Dump


class Cramped(local_engine.LocalEngine):
    """An engine that may hold next to nothing, so that all rows go through a file."""

    def pipeline(self, *given: object, **named: object) -> local.LocalGraph:
        made = super().pipeline(*given, **named)  # type: ignore[arg-type]
        made._held = shuffle.Held(1, self._folder())
        return made


@pytest.mark.parametrize("case", cases.CASES, ids=lambda case: case.__name__)
def test_statistics_before_the_noise_are_those_of_the_direct_runner(
    case: Case, compute: Compute, expected: Callable[[Case], Dump]
) -> None:
    engine = local_engine.configured(["--threads=3"])
    assert exact.differences(expected(case), compute(case, engine)) == []


@pytest.mark.parametrize("case", [cases.a_hot_user, cases.types, cases.kept_of_types], ids=lambda case: case.__name__)
def test_rows_that_went_through_a_file_give_the_same(
    case: Case, compute: Compute, expected: Callable[[Case], Dump], tmp_path: pathlib.Path
) -> None:
    options = dataclasses.replace(local_options.read(["--threads=3"]), spill_folder=tmp_path)
    assert exact.differences(expected(case), compute(case, Cramped(options))) == []
    assert list(tmp_path.iterdir()) == []  # its files have no names


def test_totals_of_groups_are_the_sums_of_those_below_them(expected: Callable[[Case], Dump]) -> None:
    """Of the direct runner, and so of every runner that agrees with it; what is no sum is found to be none."""
    dump = expected(cases.rollups)
    assert exact.misfits(dump, ["rows", "not_null", "sum", "clipped_sum"]) == []
    assert {name.partition(".")[0] for name in exact.misfits(dump, ["units"])} == {"found", "listed", "on_disk", "rows"}


def test_another_salt_is_seen(
    compute: Compute, expected: Callable[[Case], Dump], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = expected(cases.a_hot_user)
    monkeypatch.setattr(exact, "SALT", 1)
    engine = local_engine.configured(["--threads=2"])
    assert exact.differences(rows, compute(cases.a_hot_user, engine)) == ["weekly.parquet"]
