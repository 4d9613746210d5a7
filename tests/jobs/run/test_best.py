"""`best` in a job file: what `plan` prints, what a run publishes, what is refused with its line.

In: the shop. Out: published folders, messages. Holds: runs are real. Not covered: the law of the choices
(tests/query/test_best.py).
"""

import json
from collections.abc import Callable

import pyarrow.parquet
import pytest

from tests.jobs.conftest import Said, Shop, stage

Call = Callable[..., Said]
LISTED = {"public": [["p0"], ["p1"], ["p2"], ["p3"], ["p4"], ["none"]]}


def best(**changes: object) -> dict[str, object]:
    """A stage that publishes the best two products."""
    buyers = {"buyers": {"kind": "privacy_id_count"}}
    return stage(**{"partitions": LISTED, "metrics": buyers, "best": {"k": 2, "by": "buyers"}, **changes})


def test_plan_says_how_many_are_chosen_of_how_many_by_what(shop: Shop, call: Call) -> None:
    job = shop.write(stages={"favourites": best()})
    said = call("plan", job)
    assert said.code == 0, said.err
    line = " ".join(said.out.split())
    assert "the best 2 of 6 public ones by units, permute and flip; 19 times out of 20, a selection is at most" in line
    assert "no values are published" in line
    listed = json.loads(call("plan", job, "--json").out)
    assert listed["mechanisms"][0]["kind"] == "approximate_dp"
    assert listed["stages"][0]["metrics"] == {}
    assert "2 decisions of epsilon" in call("plan", job, "--explain").out


@pytest.mark.parametrize("mechanism", ["permute_and_flip", "exponential"])
def test_a_run_publishes_keys_and_ranks_and_no_values(shop: Shop, call: Call, mechanism: str) -> None:
    job = shop.write(
        stages={
            "favourites": best(best={"k": 2, "by": "turnover", "mechanism": mechanism},
                               metrics={"turnover": {"kind": "sum", "column": "price", "min_value": 0, "max_value": 20}}),
            "weekly": stage(),
        }
    )  # fmt: skip
    said = call("run", job, "--output", shop.folder / "out")
    assert said.code == 0, said.err
    released = pyarrow.parquet.read_table(shop.folder / "out" / "favourites.parquet")
    assert released.column_names == ["product", "rank"]
    # Each product sold for about 12,000, and noise is a few hundreds: what nobody bought is not among the best.
    assert set(released["product"].to_pylist()) < {"p0", "p1", "p2", "p3", "p4"}
    assert sorted(released["rank"].to_pylist()) == [1, 2]
    content = json.loads((shop.folder / "out" / "manifest.json").read_text())
    kinds = {record["kind"] for record in content["mechanisms"] if record["stage"] == "favourites"}
    assert kinds == {"bounded_range" if mechanism == "exponential" else "approximate_dp"}
    page = (shop.folder / "out" / "report.html").read_text()
    # The report shows both columns, and says how the rows came to be there.
    assert ">rank<" in "".join(page.split())
    assert "in a list of 6 that was fixed before any data was read" in page


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"best": {"k": 7, "by": "buyers"}}, "best.k: must be at most the number of partitions"),
        ({"best": {"k": 0, "by": "buyers"}}, "best.k"),
        ({"best": {"by": "orders"}}, "best.by: must name the only metric of its stage"),
        (
            {"metrics": {"buyers": {"kind": "privacy_id_count"}, "orders": {"kind": "count"}}},
            "best.by: must name the only metric of its stage",
        ),
        (
            {
                "metrics": {"buyers": {"kind": "mean", "column": "price", "min_value": 0, "max_value": 1}},
            },
            "best.by: must be a single count or sum",
        ),
        ({"partitions": {"private": {}}}, "best: needs public partitions"),
        ({"best": {"by": "buyers", "mechanism": "gumbel"}}, "best.mechanism"),
        ({"metrics": {"buyers": {"kind": "sum", "column": "note", "min_value": 0, "max_value": 1}}}, "note"),
    ],
)
def test_what_cannot_be_chosen_is_refused_with_its_line(
    shop: Shop, call: Call, changes: dict[str, object], complaint: str
) -> None:
    said = call("plan", shop.write(stages={"favourites": best(**changes)}))
    assert said.code == 2
    assert complaint in " ".join(said.err.split()), said.err
    assert "job.yaml:" in said.err
