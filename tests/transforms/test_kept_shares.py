"""What bounds cut off, in a pipeline of one's own: beside the stage, paid for once, refused where it would be wrong."""

import json
from pathlib import Path

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.testing.util import assert_that

import dp_pipelines as dp
from dp_pipelines.errors import RequestError
from dp_pipelines.transforms import KeptShares, PrivateAggregate

ROWS = pa.table(
    {
        "customer": np.repeat(np.arange(1000), 4),
        "region": ["north", "south"] * 2000,
        "amount": pa.array([1.0, 50.0, None, 3.0] * 1000),
    }
)


def plan(**changes: object) -> dp.Plan:
    fields: dict[str, object] = {
        "privacy_unit": "customer",
        "partition_by": "region",
        "metrics": {"paid": dp.Sum("amount", min_value=0, max_value=10)},
        "bounds": dp.ContributionBounds(max_contributions=3),
        "kept": dp.Kept(share=0.5),
    }
    return dp.Plan(epsilon=30, delta=1e-6, stages={"weekly": dp.Query(**{**fields, **changes})})  # type: ignore[arg-type]


def test_it_is_released_beside_the_stage(tmp_path: Path) -> None:
    made = plan()

    def right(found: list[str]) -> None:
        (kept,) = (json.loads(text) for text in found)
        assert kept["whole"]["share"] == pytest.approx(0, abs=0.03)
        assert kept["rows"]["share"] == pytest.approx(0.75, abs=0.03)
        facts = {fact["column"]: fact["share"] for fact in kept["facts"]}
        assert facts["amount"] == pytest.approx(0.75, abs=0.1)

    with beam.Pipeline("FnApiRunner") as pipeline:
        events = pipeline | beam.Create([ROWS.slice(0, 1500), ROWS.slice(1500)]).with_output_types(pa.Table)
        events | "Weekly" >> PrivateAggregate(made["weekly"])
        assert_that(events | "Kept" >> KeptShares(made["weekly"], made["weekly.kept"]), right)


def test_it_is_released_once() -> None:
    made = plan()
    with beam.Pipeline("FnApiRunner") as pipeline:
        events = pipeline | beam.Create([ROWS]).with_output_types(pa.Table)
        events | "Kept" >> KeptShares(made["weekly"], made["weekly.kept"])
    with pytest.raises(RequestError, match=r"weekly\.kept"):
        KeptShares(made["weekly"], made["weekly.kept"])


def test_what_would_be_wrong_is_refused() -> None:
    made, other = plan(), plan(kept=None)
    with pytest.raises(RequestError, match="use KeptShares"):
        PrivateAggregate(made["weekly.kept"])
    with pytest.raises(RequestError, match="must be the stage of the same plan"):
        KeptShares(made["weekly.kept"], made["weekly"])
    with pytest.raises(RequestError, match="must be the stage of the same plan"):
        KeptShares(other["weekly"], other["weekly"])
    auto = dp.ContributionBounds(
        max_partitions_contributed="auto", partition_candidates=[1, 2], max_contributions_per_partition=1
    )
    chosen = plan(bounds=auto)
    with pytest.raises(RequestError, match="another pipeline must release first"):
        KeptShares(chosen["weekly"], chosen["weekly.kept"])
