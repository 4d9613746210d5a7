"""What a reader of bounds that runs choose, and of unit columns of aggregates, found broken.

In: the shop of the jobs' tests. Out: nothing. Holds: each test states what the documents promise and failed when it was
written, but for one, whose document was wrong. Not covered: what was tried and held.
"""

# ruff: noqa: F811 - fixtures are named where they are asked for
import dataclasses
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from dp_pipelines.audit import audit
from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from dp_pipelines.planning import resolve
from dp_pipelines.planning.stage import StagePlan, build_stage
from tests.jobs.conftest import Said, Shop, call, own_anchors, shop, stage  # noqa: F401 - fixtures
from tests.privacy.test_sensitivity import Scales
from tests.privacy.test_sensitivity_of_partition_bounds import plan_of

Call = Callable[..., Said]
AUTO = {"kind": "sum", "column": "price", "min_value": 0, "max_value": "auto", "within": [0, 1000000]}
LISTED = {"public": [["p0"], ["p1"]]}
BUYERS = {"buyers": {"kind": "privacy_id_count"}}
ROWS = 2000


def fill(shop: Shop, **columns: object) -> None:
    """One file: a customer for each row, in two products."""
    for path in (shop.folder / "data").iterdir():
        path.unlink()
    base = {"customer": np.arange(ROWS), "product": [f"p{i // 2 % 2}" for i in range(ROWS)], "price": np.ones(ROWS)}
    pa.parquet.write_table(pa.table({**base, **columns}), shop.folder / "data" / "rows.parquet")


@pytest.mark.parametrize("over", [{"where": "price > 0"}, {"unit_columns": {"n": "count(*) OVER ()"}}])
def test_a_list_beside_unit_columns_runs_or_is_refused_before_anything_is_charged(
    shop: Shop,
    call: Call,
    over: dict[str, object],
) -> None:
    """`whole_units.canonical` refuses nested types in a worker; the schema is public and known before the charge."""
    fill(shop, taste=pa.array([[1.0, 0.5]] * ROWS))
    taste = {"kind": "vector_sum", "column": "taste", "size": 2, "norm": "l2", "max_norm": 1.0}
    said = call(
        "run", shop.write(stages={"weekly": stage(metrics={"taste": taste}, **over)}), "--output", shop.folder / "o"
    )
    charged = "run_reserved" in [event.kind for event in Ledger.open(str(shop.folder / DEFAULT_NAME)).history]
    assert (said.code, charged) in [(0, True), (2, False)]


def test_bounds_of_values_are_chosen_from_the_column_that_is_named(shop: Shop, call: Call) -> None:
    """`jobs.run.build` takes a histogram of a column called `_partitions` for the histogram of units, whatever the stage asks."""
    fill(shop, _partitions=np.full(ROWS, 5000.0))
    metrics = {"revenue": {**AUTO, "column": "_partitions"}}
    path = shop.write(stages={"weekly": stage(metrics=metrics, partitions=LISTED)})
    said = call("run", path, "--output", shop.folder / "o", "--ledger", "none")
    if said.code == 2:
        return  # refused by a public name is right as well
    assert said.code == 0
    found = pa.parquet.read_table(shop.folder / "o" / "weekly.parquet").column("revenue").to_pylist()
    assert found == pytest.approx([5000.0 * ROWS / 2] * 2, rel=0.1)


def test_beside_unit_columns_units_that_are_no_text_are_left_out_as_the_docs_say(shop: Shop, call: Call) -> None:
    """Bytes that are no UTF-8 are a unit of their own elsewhere; what looks at whole units reads text, and leaves them out."""
    names = pa.array([b"\xff%d" % i if i % 2 else b"a%d" % i for i in range(ROWS)], pa.binary())
    fill(shop, customer=pa.Array.from_buffers(pa.string(), ROWS, names.buffers()))
    found = []
    for number, over in enumerate([{}, {"where": "price > 0"}]):
        asked = stage(metrics=BUYERS, partitions=LISTED, **over)
        path = shop.write(stages={"weekly": asked}, budget={"epsilon": 30.0, "delta": 1e-3})
        assert call("run", path, "--output", shop.folder / str(number), "--ledger", "none").code == 0
        found.append(pa.parquet.read_table(shop.folder / str(number) / "weekly.parquet").column("buyers").to_pylist())
    assert found[0] == pytest.approx([ROWS / 2] * 2, abs=50)
    assert found[1] == pytest.approx([ROWS / 4] * 2, abs=50)


def test_files_that_disagree_are_told_as_such_beside_unit_columns(shop: Shop, call: Call) -> None:
    """`over_units` binds without `absent`, and says that the unit's column is not there."""
    fill(shop)
    other = pa.table({"customer": pa.array([1], pa.int32()), "product": ["p0"], "price": [1.0]})
    pa.parquet.write_table(other, shop.folder / "data" / "more.parquet")
    said = call("plan", shop.write(stages={"weekly": stage(where="price > 0")}))
    assert said.code == 2
    assert "give the column one type in all files" in said.err


@pytest.mark.parametrize("kind", ["approximate", "weights"])
def test_a_plan_with_an_open_bound_on_partitions_can_be_audited(kind: str) -> None:
    """`audit._closed` leaves that bound open: of Gaussian noise `worst._moved` then finds that no number at all moves."""
    assert audit.audit(plan_of(kind), replays=2000, false_alarms=1e-10).agrees


def test_an_audit_looks_at_the_stage_that_a_run_with_a_chosen_bound_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs is `resolve.with_partitions` of a candidate. With its noise made 64 times too small, an audit must not agree."""

    def careless(stage: StagePlan, partitions: int, rows: int | None = None) -> StagePlan:
        query = dataclasses.replace(stage.query, bounds=stage.query.bounds.choosing(partitions, rows))
        scales = {r.kind: r.scale / 64 for r in stage.mechanisms if r.scale is not None}
        small = Scales(
            gaussian_scale=scales.get("gaussian", Fraction(1)), laplace_scale=scales.get("laplace", Fraction(1))
        )
        ready = build_stage(stage.name, query, stage.choices, small)
        return dataclasses.replace(ready, mechanisms=stage.mechanisms)

    monkeypatch.setattr(resolve, "with_partitions", careless)
    assert not audit.audit(plan_of("laplace"), replays=5000).agrees
