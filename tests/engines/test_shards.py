"""Into how many shards the units are cut changes no statistic, bit for bit.

In: the cases of the conformance of runners. Out: their exact statistics on the direct runner, by number of shards; the number of
places follows from it. Not covered: files of training examples, of which there is one for each shard.
"""

from collections.abc import Callable

import pytest

from dp_pipelines.jobs.runners import engines
from dp_pipelines.kernels import sizes
from tests.engines import cases, exact
from tests.engines.cases import Case
from tests.engines.conftest import Compute
from tests.engines.exact import Dump

EXAMPLES = (cases.examples_of_training, cases.examples_of_a_join)
CASES: list[Case] = [case for case in cases.SMALL if case not in EXAMPLES]
LARGE = (cases.types, cases.unit_columns)

MANY = 100
"""Shards, whose totals meet in more places than those of few."""


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.slow] if case in LARGE else []) for case in CASES],
    ids=lambda case: case.__name__,
)
def test_statistics_before_the_noise_are_the_same_in_any_number_of_shards(
    case: Case, compute: Compute, expected: Callable[[Case], Dump], monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = expected(case)
    assert sizes.places(MANY) > sizes.places(exact.SHARDS)
    for shards in (1, MANY):
        monkeypatch.setattr(exact, "SHARDS", shards)
        with engines.engine("direct", []) as engine:
            assert exact.differences(usual, compute(case, engine)) == []


def test_another_choice_of_contributions_is_seen(compute: Compute, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for salt in (1, 2):
        monkeypatch.setattr(exact, "SALT", salt)
        with engines.engine("direct", []) as engine:
            found.append(compute(cases.a_hot_user, engine))
    assert exact.differences(*found) != []
