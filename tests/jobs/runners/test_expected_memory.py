"""Memory that is told before a run: from the rows that a job declares, never from those that its files hold."""

import dataclasses
from collections.abc import Callable

import pytest

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.request.request import check
from dp_pipelines.jobs.run import run as running
from dp_pipelines.jobs.run import shuffled_rows
from dp_pipelines.jobs.runners import expected_memory, local_options
from dp_pipelines.jobs.spec import job_file
from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from tests.jobs.conftest import Said, Shop, stage

GIB = 2**30

FREE = 4 * GIB


@pytest.fixture(autouse=True)
def four_gib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_options, "free_memory", lambda: FREE)


def rows_that_fit(shop: Shop) -> float:
    """How many rows of the shop's job fill what is free."""
    request = check(file := job_file.load(str(shop.job)), [])
    width = shuffled_rows.of_plan(request, running.plan_of(file, request.stages))
    return (FREE - expected_memory.DIRECT_BYTES) / expected_memory.DIRECT_COPIES / width


@pytest.mark.parametrize("ledger", [[], ["--ledger", "none"]], ids=["with a ledger", "without"])
def test_rows_that_do_not_fit_into_memory_are_refused_before_a_charge(
    shop: Shop, call: Callable[..., Said], ledger: list[str]
) -> None:
    rows = round(rows_that_fit(shop) * 1.5)
    shop.write(expect={"rows": rows})
    before = shop.left()
    said = call("run", shop.job, "--output", shop.folder / "out", "--runner", "direct", *ledger)
    assert said.code == 2
    assert (
        f"--runner direct: holds some 5.9 GiB with the {rows:,} rows that expect declares; 4.0 GiB are there"
        in said.err
    )
    assert "take --runner local or flink" in said.err
    assert shop.left() == before
    if not ledger:
        opened = Ledger.open(str(shop.folder / DEFAULT_NAME))
        assert not opened.state.runs
        opened.close()


def test_rows_that_fit_are_read_and_local_takes_any(shop: Shop, call: Callable[..., Said]) -> None:
    most = rows_that_fit(shop)
    for runner, rows in (("direct", most * 0.9), ("local", most * 1000)):
        shop.write(expect={"rows": round(rows)})
        said = call("run", shop.job, "--output", shop.folder / runner, "--runner", runner, "--ledger", "none")
        assert said.code == 0, said.err


def test_nothing_is_said_of_rows_that_nobody_declares(
    shop: Shop, call: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_options, "free_memory", lambda: 1)
    for number, expect in enumerate((None, {"users": 10**6, "rows_per_partition": 10**9})):
        shop.write(expect=expect)
        said = call("run", shop.job, "--output", shop.folder / f"out{number}", "--runner", "direct", "--ledger", "none")
        assert said.code == 0, said.err
        assert "GiB" not in said.err


def test_where_the_system_does_not_tell_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_options, "free_memory", lambda: None)
    expected_memory.refuse_unfit("direct", 1e15, 100)


def test_the_files_decide_nothing(shop: Shop) -> None:
    def told(of_source: int) -> str:
        request = check(file := job_file.load(str(shop.job)), [])
        source = dataclasses.replace(request.source, rows=of_source, sizes={})
        request = dataclasses.replace(request, source=source)
        with pytest.raises(RequestError) as refused:
            width = shuffled_rows.of_plan(request, running.plan_of(file, request.stages))
            expected_memory.refuse_unfit("direct", 10**12, width)
        return str(refused.value)

    assert told(1) == told(10**12)


def test_each_stage_of_a_pipeline_counts(shop: Shop) -> None:
    def width(**stages: object) -> int:
        request = check(file := job_file.load(str(shop.write(stages=stages))), [])
        return shuffled_rows.of_plan(request, running.plan_of(file, request.stages))

    assert width(a=stage(), b=stage()) == 2 * width(a=stage())
    arms = stage(partitions={"public": [["p0"], ["p1"]]})
    compare = {"by": "product", "baseline": "p0", "metrics": ["revenue"]}
    assert width(a={**arms, "compare": compare}) == 2 * width(a=arms)
    assert width(a={**arms, "kept": {"share": 0.1}}) > width(a=arms)
