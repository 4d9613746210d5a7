"""`shrink: true` on every way in: job files, sessions, Beam YAML; and what plan, summary, manifest, report and audit say of it.

In: the shop's rows. Out: failures. Holds: each way publishes the same columns. Not covered: the numbers
(tests/metrics/test_shrinkage.py), and how they come out of what was drawn (tests/release/test_all_partitions.py).
"""

import json
from collections.abc import Callable
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

import dp_pipelines as dp
from dp_pipelines.jobs.beam_yaml import transforms
from dp_pipelines.jobs.session.session import Session
from dp_pipelines.transforms import PrivateMean, PublishRelease
from tests.jobs.conftest import Said, Shop, purchases, stage
from tests.report.page import Page

Call = Callable[..., Said]

BASKET = {"kind": "mean", "column": "price", "min_value": 0, "max_value": 20, "shrink": True}
COLUMNS = ["basket", "basket_stddev", "basket_raw", "basket_raw_stddev"]


def with_mean(**changes: Any) -> dict[str, object]:
    """The shop's stage with a count and a shrunk mean."""
    metrics = {"orders": {"kind": "count"}, "basket": {**BASKET, **changes.pop("basket", {})}}
    return stage(metrics=metrics, **changes)


def published(shop: Shop, call: Call, **changes: Any) -> pa.Table:
    said = call("run", shop.write(stages={"weekly": with_mean(**changes)}), "--output", shop.folder / "out")
    assert (said.code, said.err) == (0, ""), said.err
    table = pyarrow.parquet.read_table(shop.folder / "out" / "weekly.parquet")
    found = table.select(COLUMNS).to_pylist()
    assert all(isinstance(number, float) for row in found for number in row.values())
    return table


@pytest.mark.usefixtures("rare_false_alarms")
def test_a_job_publishes_both_and_says_so_everywhere(shop: Shop, call: Call) -> None:
    job = shop.write(stages={"weekly": with_mean()})
    assert "depends on group size, before shrinkage" in call("plan", job).out
    said = call("run", job, "--output", shop.folder / "out")
    assert (said.code, said.err) == (0, "")
    assert "basket is pulled towards the other groups" in said.out
    table = pyarrow.parquet.read_table(shop.folder / "out" / "weekly.parquet")
    assert table.column_names == ["product", "orders", "orders_stddev", *COLUMNS]
    (described,) = json.loads((shop.folder / "out" / "manifest.json").read_text())["stages"]
    entry, raw = described["metrics"]["basket"], described["metrics"]["basket_raw"]
    assert entry["shrunk"] is True
    assert raw["raw_of"] == "basket"
    assert raw["kind"] == entry["kind"] == "mean"
    assert raw["statistics"] == entry["statistics"]
    page = Page((shop.folder / "out" / "report.html").read_text())
    words = " ".join(page.words.split())
    assert "basket : the mean of price, shrunk: pulled towards those of the other groups" in words
    assert "basket_raw : the mean of price, as noise left it, before basket was shrunk" in words
    plots = [str(attributes.get("aria-label")) for tag, attributes in page.elements if tag == "svg"]
    assert any("basket" in title for title in plots)
    assert not any("basket_raw" in title for title in plots)
    assert call("audit", job, "--replays", "2000").code == 0


def test_a_mean_without_it_is_published_as_it_always_was(shop: Shop, call: Call) -> None:
    jobs = [shop.write(stages={"weekly": with_mean(basket=asked)}) and call("plan", shop.job, "--json").out
            for asked in ({"shrink": False}, {"shrink": True})]  # fmt: skip
    plain, shrunk = map(json.loads, jobs)
    assert plain["mechanisms"] == shrunk["mechanisms"]
    call("run", shop.write(stages={"weekly": with_mean(basket={"shrink": False})}), "--output", shop.folder / "out")
    table = pyarrow.parquet.read_table(shop.folder / "out" / "weekly.parquet")
    assert table.column_names == ["product", "orders", "orders_stddev", "basket", "basket_stddev"]
    assert "shrunk" not in (shop.folder / "out" / "manifest.json").read_text()


@pytest.mark.parametrize(
    "changes",
    [
        {"partitions": {"public": [["p1"], ["nobody"], ["none"]]}},
        {"partitions": {"private": {"strategy": "sips"}}},
        {"basket": {"min_value": "auto", "max_value": "auto", "within": [0, 1000]}},
        {"top": {"k": 2, "by": "basket"}},
        {"where": "price > 1000", "partitions": {"private": {"strategy": "sips"}}},
        {"where": "price > 1000"},
    ],
    ids=["public", "sips", "auto bounds", "top", "nothing with sips", "nothing"],
)
def test_it_stands_beside_everything_else(shop: Shop, call: Call, changes: dict[str, Any]) -> None:
    table = published(shop, call, **changes)
    if "top" in changes:
        assert table.num_rows == 2
    elif "where" in changes:
        assert table.num_rows == 0
    else:
        assert table.num_rows > 0


def test_bounds_that_a_run_has_chosen_are_told_of_both(shop: Shop, call: Call) -> None:
    published(shop, call, basket={"min_value": 0, "max_value": "auto", "within": [0, 1000]})
    (described,) = json.loads((shop.folder / "out" / "manifest.json").read_text())["stages"]
    bounds = [described["metrics"][name]["bounds"] for name in ("basket", "basket_raw")]
    assert bounds[0] == bounds[1]
    assert 0 < bounds[0][1] <= 1000


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        ({"kind": "count", "shrink": True}, "unknown key; shrink is for mean; known keys: kind, weight, stddev"),
        ({"kind": "variance", "column": "price", "min_value": 0, "max_value": 9, "shrink": True}, "shrink is for mean"),
        ({**BASKET, "shrink": "very"}, "shrink: must be true or false"),
        ({"kind": "mean", "column": "price", "min_value": 0, "max_value": 9, "shrnk": True}, "did you mean 'shrink'?"),
    ],
)
def test_what_is_wrong_is_told_with_line_and_hint(shop: Shop, call: Call, metric: dict[str, Any], said: str) -> None:
    told = call("plan", shop.write(stages={"weekly": stage(metrics={"m": metric})}))
    assert told.code == 2
    assert said in told.err
    (line,) = (number for number, text in enumerate(shop.job.read_text().splitlines(), 1) if "shr" in text)
    assert f"job.yaml:{line}: stages.weekly.metrics.m.shr" in told.err


def test_a_session_shows_both(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.chdir(tmp_path)
    over = Session(purchases(0), privacy_unit="customer", dataset="shop", epsilon=8, delta=1e-5)
    asked = {
        "partition_by": "product",
        "bounds": dp.ContributionBounds(max_partitions_contributed=5, max_contributions_per_partition=2),
        "metrics": {"basket": dp.Mean("price", min_value=0, max_value=20, shrink=True)},
    }
    release = over.query(name="baskets", epsilon=4.0, delta=1e-6, **asked)
    assert release.to_arrow().column_names == ["product", *COLUMNS]
    assert "basket is pulled towards the other groups" in repr(release)
    assert "basket is pulled towards the other groups" in release._repr_html_()


def test_beam_yaml_knows_the_columns_before_a_row_is_read() -> None:
    rows = [{"who": number % 500, "shop": "north", "paid": 4.0} for number in range(1000)]
    typed = beam.typehints.row_type.RowTypeConstraint.from_fields([("who", int), ("shop", str), ("paid", float)])
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        made = pipeline | beam.Create(rows) | beam.Map(lambda row: beam.Row(**row)).with_output_types(typed)
        released = made | transforms.DpAggregate(
            privacy_unit="who", partition_by=["shop"], epsilon=8.0, delta=1e-5,
            bounds={"max_partitions_contributed": 1, "max_contributions_per_partition": 2},
            metrics={"basket": {**BASKET, "column": "paid"}}, ledger="none",
        )  # fmt: skip
        fields = dict(released.element_type._fields)
        assert list(fields) == ["shop", *COLUMNS]


def test_the_short_form_of_pipelines_has_it(tmp_path: Any) -> None:
    bounds = dp.ContributionBounds(max_partitions_contributed=5, max_contributions_per_partition=2)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        _ = (
            pipeline
            | beam.Create([purchases(0)]).with_output_types(pa.Table)
            | PrivateMean(privacy_unit="customer", partition_by="product", bounds=bounds, epsilon=8.0, delta=1e-5,
                          column="price", min_value=0, max_value=20, shrink=True, name="basket")
            | PublishRelease(tmp_path / "out")
        )  # fmt: skip
    (path,) = (tmp_path / "out").glob("*.parquet")
    assert pyarrow.parquet.read_table(path).column_names == ["product", *COLUMNS]
