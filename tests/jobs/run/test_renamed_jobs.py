"""A job that has only other names than a released one is refused before it is charged, with the ways that cost nothing.

In: the shop, run twice. Out: exit codes, messages, the ledger. Holds: runs are real. Not covered: questions on a terminal
(`tests/jobs/cli/test_run_question.py`).
"""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.jobs.run.renamed_jobs import names_that_differ
from tests.jobs.conftest import Said, Shop, stage

Call = Callable[..., Said]


def renamed(**names: str) -> dict[str, Any]:
    """The shop's stage with other names of metrics."""
    made: Any = stage()
    made["metrics"] = {names.get(name, name): metric for name, metric in made["metrics"].items()}
    return made


def released(shop: Shop, call: Call) -> None:
    shop.write()
    assert call("run", shop.job, "--output", shop.folder / "out").code == 0


ORDERS = "stages.weekly.metrics.orders -> stages.weekly.metrics.bestellungen"
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "a stage": ({"woche": stage()}, "stages.weekly -> stages.woche"),
    "a metric": ({"weekly": renamed(orders="bestellungen")}, ORDERS),
    "both": (
        {"w": renamed(orders="o")},
        "stages.weekly -> stages.w, stages.weekly.metrics.orders -> stages.w.metrics.o",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_other_names_alone_are_refused_and_charge_nothing(shop: Shop, call: Call, case: str) -> None:
    released(shop, call)
    stages, words = CASES[case]
    charged = shop.charged()
    said = call("run", shop.write(stages=stages), "--output", shop.folder / "two")
    assert said.code == 2
    assert "error: run: has a job file with only other names than that of run " in said.err
    assert words in said.err
    assert "costs another epsilon" not in said.err
    assert "write label: or title: for what readers see" in said.err
    assert "dp-pipelines report FOLDER --job JOB --output page.html" in said.err
    assert shop.charged() == charged
    assert not (shop.folder / "two").exists()
    assert call("run", shop.job, "--output", shop.folder / "two", "--yes").code == 2
    assert call("run", shop.job, "--output", shop.folder / "two", "--as-new").code == 0
    assert shop.charged() != charged
    again = call("run", shop.job, "--output", shop.folder / "two")  # it has its own release now
    assert again.code == 0, again.err


@pytest.mark.parametrize(
    "changes",
    [
        {"stages": {"woche": stage(partition_by=["product", "store"])}},
        {"stages": {"weekly": stage(), "more": renamed(orders="o")}},
        {"stages": {"woche": stage()}, "where": "price > 1"},
        {"stages": {"woche": stage()}, "budget": {"epsilon": 2.0, "delta": 1e-5}},
        {"stages": {"woche": stage(bounds={"max_partitions_contributed": 2, "max_contributions_per_partition": 2})}},
    ],
    ids=["other groups", "another stage", "other rows", "another budget", "other bounds"],
)
def test_a_job_that_asks_for_something_else_is_charged(shop: Shop, call: Call, changes: dict[str, Any]) -> None:
    released(shop, call)
    said = call("run", shop.write(**changes), "--output", shop.folder / "two")
    assert said.code == 0, said.err


def test_labels_need_no_new_run(shop: Shop, call: Call) -> None:
    released(shop, call)
    labelled: Any = stage(title="Woche")
    labelled["metrics"]["orders"]["label"] = "Bestellungen"
    charged = shop.charged()
    assert call("run", shop.write(stages={"weekly": labelled}), "--output", shop.folder / "two").code == 0
    assert shop.charged() == charged


NAMES = st.lists(st.sampled_from(["a", "b", "c.d", 'e"', "metrics", "kind"]), min_size=3, max_size=3, unique=True)


@given(stages=NAMES, metrics=NAMES, swapped=st.booleans())
def test_names_are_found_whatever_they_are(stages: list[str], metrics: list[str], swapped: bool) -> None:
    from dp_pipelines.jobs.request.job_fields import flat_fields

    def job(names: list[str], of: list[str], kinds: tuple[str, str, str]) -> dict[str, str]:
        made = {
            name: {
                "kind": "aggregate",
                "by": number,
                "metrics": {m: {"kind": k} for m, k in zip(of, kinds, strict=True)},
            }
            for number, name in enumerate(names)
        }
        return dict(flat_fields({"dataset": "x", "stages": made}))

    kinds = ("count", "sum", "mean")
    before, after = job(["x", "y", "z"], ["k", "l", "m"], kinds), job(stages, metrics, kinds)
    found = names_that_differ(before, after)
    assert len(found) == 3 + 9
    assert (
        names_that_differ(after, before) == [(new, old) for old, new in found]
        or len(names_that_differ(after, before)) == 12
    )
    assert names_that_differ(before, before) == []
    other = job(stages, metrics, ("count", "count", "mean") if swapped else ("count", "sum", "sum"))
    assert names_that_differ(before, other) == []
