"""Ratios and expressions of released numbers cost nothing: no other plan, no other run, no row read, and right intervals.

In: the shop, and a table of 5,000 public groups whose true numbers are known. Out: tables, pages, messages, exit codes. Holds:
runs are real. Not covered: the arithmetic (tests/report/derived).
"""

import json
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from dp_pipelines.jobs.request.request import check
from dp_pipelines.jobs.spec import job_file, presentation
from dp_pipelines.report.derived import intervals, part_noise
from tests.jobs.conftest import Said, Shop, stage

Call = Callable[..., Said]

BASKET = {"kind": "ratio", "of": "revenue", "to": "orders"}
TWICE = {"kind": "expression", "of": "2 * revenue / orders + 1"}


def computing(derived: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The shop's stages with numbers that are computed."""
    made: Any = stage(**changes)
    made["metrics"] |= derived
    return {"weekly": made}


def table_of(folder: pathlib.Path) -> pa.Table:
    """The published table."""
    return pa.parquet.read_table(folder / "weekly.parquet")


def test_what_is_computed_is_no_part_of_a_plan_or_of_a_run(shop: Shop) -> None:
    plain = check(job_file.load(str(shop.write())), ())
    derived = {"basket": BASKET | {"label": "Basket", "measure": "EUR"}, "twice": TWICE}
    computed = check(job_file.load(str(shop.write(stages=computing(derived)))), ())
    assert (plain.content, plain.asked, plain.queries) == (computed.content, computed.asked, computed.queries)


def test_a_run_publishes_what_is_computed_in_its_table_its_page_and_its_copies(shop: Shop, call: Call) -> None:
    derived = {"basket": BASKET | {"label": "Basket", "measure": "EUR"}, "twice": TWICE}
    shop.write(stages=computing(derived), outputs={"files": [{"csv": {"rounded": True}}]})
    said = call("run", shop.job, "--output", shop.folder / "out")
    assert (said.code, said.err) == (0, "")
    assert "basket" in said.out
    assert "basket: revenue / orders, computed from the released numbers" in said.out
    found = table_of(shop.folder / "out")
    ends = ("", "_noise_low", "_noise_high")
    assert found.column_names[5:] == [f"{name}{end}" for name in ("basket", "twice") for end in ends]
    numbers = {name: np.asarray(found.column(name)) for name in found.column_names[1:]}
    assert numbers["basket"] == pytest.approx(numbers["revenue"] / numbers["orders"])
    assert numbers["twice"] == pytest.approx(2 * numbers["basket"] + 1)
    assert (numbers["basket_noise_low"] < numbers["basket"]).all()
    assert (numbers["basket"] < numbers["basket_noise_high"]).all()
    content = json.loads((shop.folder / "out" / "manifest.json").read_text())
    assert list(content["stages"][0]["metrics"]) == ["orders", "revenue"]
    assert content["stages"][0]["derived"]["basket"]["formula"] == "revenue / orders"
    page = (shop.folder / "out" / "report.html").read_text(encoding="utf-8")
    for words in (
        "Basket (EUR)",
        "ranges in brackets cover 95% of the noise",
        "2 * revenue / orders + 1, computed from",
    ):
        assert words in page
    header, first, *_ = (shop.folder / "out" / "weekly.csv").read_text().splitlines()
    cells = dict(zip(header.split(","), first.split(","), strict=True))
    of_basket = [cells[f'"basket{end}"'] for end in ends]
    assert [len(cell) <= 6 for cell in of_basket] == [True] * 3  # as few digits as the page has
    assert float(of_basket[1]) <= numbers["basket_noise_low"][0]
    assert float(of_basket[2]) >= numbers["basket_noise_high"][0]


def test_a_released_job_gets_computed_numbers_for_free(shop: Shop, call: Call) -> None:
    out, page = shop.folder / "out", shop.folder / "page.html"
    assert call("run", shop.job, "--output", out).code == 0
    charged, before = shop.charged(), (out / "weekly.parquet").read_bytes()
    shop.write(stages=computing({"basket": BASKET}))
    said = call("run", shop.job, "--output", out)
    assert (said.code, "the stored page has other computed numbers than the job file" in said.err) == (0, True)
    shutil.rmtree(shop.folder / "data")  # no row is read from here on
    (shop.folder / "dp-ledger.sqlite").rename(shop.folder / "elsewhere")
    assert call("report", out, "--job", shop.job, "--output", page).code == 0
    assert "basket" in page.read_text(encoding="utf-8")
    assert "on this page alone, and not in the file" in page.read_text(encoding="utf-8")
    assert call("report", out, "--job", shop.job, "--csv", shop.folder / "tables").code == 0
    rows = (shop.folder / "tables" / "weekly.csv").read_text().splitlines()
    assert rows[0].endswith('"basket","basket_noise_low","basket_noise_high"')
    assert (out / "weekly.parquet").read_bytes() == before
    (shop.folder / "elsewhere").rename(shop.folder / "dp-ledger.sqlite")
    assert shop.charged() == charged


def test_a_page_without_what_was_computed_is_made_again_without_it(shop: Shop, call: Call) -> None:
    shop.write(stages=computing({"basket": BASKET}))
    assert call("run", shop.job, "--output", shop.folder / "out").code == 0
    shop.write()
    page = shop.folder / "page.html"
    assert call("report", shop.folder / "out", "--job", shop.job, "--output", page).code == 0
    assert "basket" not in page.read_text(encoding="utf-8")


def test_a_job_that_computes_from_what_a_release_does_not_have_makes_no_page(shop: Shop, call: Call) -> None:
    assert call("run", shop.job, "--output", shop.folder / "out").code == 0
    made: Any = computing({"basket": BASKET | {"to": "units"}})
    made["weekly"]["metrics"]["units"] = {"kind": "privacy_id_count"}
    shop.write(stages=made)
    said = call("report", shop.folder / "out", "--job", shop.job, "--output", shop.folder / "page.html")
    assert said.code == 2
    assert "metrics.basket: has no number: units is no released count or sum of this table" in said.err


@pytest.mark.parametrize(
    ("name", "metric", "words"),
    [
        (
            "a",
            BASKET | {"to": "order"},
            "a.to: names 'order', which this stage does not publish; did you mean 'orders'?",
        ),
        ("a", BASKET | {"to": "visits"}, "add it, e.g. visits: {kind: count}, which costs a part of the budget"),
        ("a", BASKET | {"to": "a"}, "a.to: names 'a', which is computed itself; name counts and sums, as 'a' does"),
        ("a", BASKET | {"to": "mean"}, "names 'mean', which is no count and no sum; a mean is a sum over a count"),
        ("a", {"kind": "expression", "of": "orders / 0"}, "a.of: divides by zero"),
        ("a", {"kind": "expression", "of": "orders.x"}, "a.of: has a sign that formulas do not know"),
        ("a", BASKET | {"weight": 2}, "a.weight: unknown key"),
        ("orders_stddev", BASKET, "would publish column 'orders_stddev', whose name another column has"),
        ("product", BASKET, "would publish column 'product', whose name another column has"),
        ("a", BASKET | {"label": "orders"}, "a.label: is the name of another column too"),
        ("", BASKET, "must be a name: non-empty text"),
        ("a\x1b[31mb", BASKET, "must not contain line breaks or control characters"),
        ("a", {"kind": "expression", "of": "orders * orders"}, "a.of: uses 'orders' twice"),
    ],
)
def test_what_cannot_be_computed_is_refused_by_plan_with_its_line(
    shop: Shop, call: Call, name: str, metric: dict[str, Any], words: str
) -> None:
    mean = {"kind": "mean", "column": "price", "min_value": 0, "max_value": 20}
    said = call("plan", shop.write(stages=computing({"mean": mean, name: metric})))
    assert said.code == 2
    assert "job.yaml:" in said.err
    assert words in said.err


SHARE = {"kind": "ratio", "of": "orders", "to": {"total": "orders"}}


def test_a_share_of_the_total_is_published_and_may_be_added_later(shop: Shop, call: Call) -> None:
    shares = {"share": SHARE, "percent": {"kind": "expression", "of": "100 * revenue / total(revenue)"}}
    shop.write(stages=computing(shares))
    out = shop.folder / "out"
    said = call("run", shop.job, "--output", out)
    assert said.code == 0, said.err
    assert (
        "share: orders / total(orders), computed from the released numbers; total is the sum over all groups"
        in said.out
    )
    found = table_of(out)
    numbers = {name: np.asarray(found.column(name)) for name in found.column_names[1:]}
    assert numbers["share"] == pytest.approx(numbers["orders"] / numbers["orders"].sum())
    assert numbers["percent"].sum() == pytest.approx(100.0)
    assert (numbers["share_noise_low"] < numbers["share"]).all()
    assert (numbers["share"] < numbers["share_noise_high"]).all()
    plain = table_of(out).select(["product", "orders"])
    shop.write(stages=computing({"part": {"kind": "expression", "of": "orders / total(orders) * 1000"}}))
    assert call("report", out, "--job", shop.job, "--csv", shop.folder / "csv").code == 0
    lines = (shop.folder / "csv" / "weekly.csv").read_text().splitlines()
    place = lines[0].replace('"', "").split(",").index("part")
    assert sum(float(line.split(",")[place]) for line in lines[1:]) == pytest.approx(1000.0)
    assert plain.equals(table_of(out).select(["product", "orders"]))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rollup": [[], ["product"]]}, "beside rollup:, whose groups share their noise with their total"),
        ({"order_by": "orders desc", "limit": 2}, "and limit: chooses rows by their numbers"),
        ({"having": "orders > 5"}, "and having: chooses rows by their numbers"),
        ({"top": {"k": 2, "by": "orders"}}, "and top: chooses rows by their numbers"),
    ],
)
def test_a_share_of_what_is_no_total_is_refused(shop: Shop, call: Call, changes: dict[str, Any], words: str) -> None:
    said = call("plan", shop.write(stages=computing({"share": SHARE}, **changes)))
    assert said.code == 2
    assert "metrics.share: names the total of 'orders'" in said.err
    assert words in said.err


def test_a_share_of_people_is_refused_since_somebody_may_be_in_several_groups(shop: Shop, call: Call) -> None:
    share = {"kind": "ratio", "of": "people", "to": {"total": "people"}}
    metrics = {"orders": {"kind": "count"}, "people": {"kind": "privacy_id_count"}, "share": share}
    said = call("plan", shop.write(stages={"weekly": stage(metrics=metrics)}))
    assert said.code == 2
    assert "whose units may be in several groups and would count in each" in said.err


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("level", {"partition_by": ["product", "store"], "rollup": [[], ["product"], ["product", "store"]]}),
        ("rest", {"partition_by": ["product", "store"], "rollup": [[], ["product"], ["product", "store"]]}),
        ("orders_low", {"bounds": "auto"}),
        ("orders_estimate", {"kept": {"share": 0.1}}),
    ],
)
def test_a_name_that_a_run_would_find_taken_is_refused_before_it_is_charged(
    shop: Shop, call: Call, name: str, changes: dict[str, Any]
) -> None:
    shop.write(stages=computing({name: BASKET}, **changes))
    for command in (("plan", shop.job), ("run", shop.job, "--output", shop.folder / "out")):
        said = call(*command)
        assert said.code == 2
        assert f"metrics.{name}: would publish column" in said.err
    assert shop.charged() == 0


def test_a_ratio_of_names_that_no_formula_can_hold_is_refused_before_it_is_charged(shop: Shop, call: Call) -> None:
    name = "q" + 135 * '"'
    shop.write(stages=computing({name: {"kind": "count"}, "a": {"kind": "ratio", "of": name, "to": name}}))
    said = call("run", shop.job, "--output", shop.folder / "out")
    assert (said.code, shop.charged()) == (2, 0)
    assert "metrics.a: is a formula of more than 500 characters" in said.err


def test_made_up_rows_show_the_columns_that_a_run_would_publish(shop: Shop, call: Call) -> None:
    shop.write(stages=computing({"basket": BASKET}, kept={"share": 0.1}))
    assert call("run", shop.job, "--output", shop.folder / "real").code == 0
    assert call("run", shop.job, "--output", shop.folder / "made", "--synthetic").code == 0
    assert table_of(shop.folder / "made").schema.names == table_of(shop.folder / "real").schema.names


def test_a_metric_that_is_called_as_the_range_of_a_ratio_would_be_stays_in_a_page_made_again(
    shop: Shop, call: Call
) -> None:
    shop.write(stages=computing({"price_low": {"kind": "privacy_id_count"}, "price": BASKET}))
    assert call("run", shop.job, "--output", shop.folder / "out").code == 0
    again = ("report", shop.folder / "out", "--job", shop.job, "--csv")
    assert call(*again, shop.folder / "with").code == 0
    shop.write(stages=computing({"price_low": {"kind": "privacy_id_count"}}))
    assert call(*again, shop.folder / "without").code == 0
    for folder in ("with", "without"):
        header = (shop.folder / folder / "weekly.csv").read_text().splitlines()[0]
        assert '"price_low",' in header, folder


def test_a_stage_that_publishes_no_number_for_each_group_computes_none(shop: Shop, call: Call) -> None:
    best = {"k": 2, "by": "orders"}
    made = computing({"a": BASKET}, partitions={"public": [["p0"], ["p1"], ["p2"]]}, best=best)
    said = call("plan", shop.write(stages=made))
    assert (said.code, "a stage with best: publishes none for each group" in said.err) == (2, True)


def test_a_comparison_of_jobs_names_what_is_computed_and_says_that_it_is_free(shop: Shop, call: Call) -> None:
    shop.write()
    earlier = shop.job.rename(shop.folder / "earlier.yaml")
    shop.write(stages=computing({"basket": BASKET}))
    said = call("plan", shop.job, "--against", earlier)
    assert said.code == 0
    assert "stages.weekly.metrics.basket.of" in said.out
    assert "nothing more: the same run returns the release of the earlier job" in said.out


GROUPS, SIZE = 5_000, 40


def many_groups(folder: pathlib.Path, epsilon: float, **bounds: int) -> dict[str, Any]:
    """Rows of many groups of equal size, each person with one row in one of them, and a job over them."""
    made = np.random.default_rng(43)
    group = np.repeat(np.arange(GROUPS), SIZE)
    price = made.integers(0, 21, GROUPS * SIZE).astype(np.float64)
    rows = pa.table({"customer": np.arange(GROUPS * SIZE), "group": group, "price": price})
    pa.parquet.write_table(rows, folder / "rows.parquet")
    pa.parquet.write_table(pa.table({"group": np.arange(GROUPS)}), folder / "groups.parquet")
    prices = {"column": "price", "min_value": 0, "max_value": 20}
    metrics = {
        "orders": {"kind": "count"},
        "revenue": {"kind": "sum", **prices},
        "mean": {"kind": "mean", **prices, "nullable": False, "weight": 4},  # so that sums are counted from the middle
        "basket": BASKET,
        "twice": TWICE,
    }
    of_stage = {"kind": "aggregate", "partition_by": ["group"], "partitions": {"public_file": "groups.parquet"}}
    return {
        "dataset": "many", "budget": {"epsilon": epsilon, "delta": 1e-6}, "source": {"parquet": "rows.parquet"},
        "stages": {"weekly": of_stage | {"bounds": bounds, "metrics": metrics}},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("law", "epsilon", "partitions", "how"),
    [("gaussian", 8.0, 16, intervals.FIELLER), ("laplace", 2.0, 1, intervals.OF_DRAWS)],
)
def test_intervals_of_a_real_release_hold_the_truth_in_95_of_100_groups(
    shop: Shop, call: Call, law: str, epsilon: float, partitions: int, how: str
) -> None:
    """The share of 5,000 independent groups is between 93 and 97%: a false alarm once in 10**10 runs."""
    bounds = {"max_partitions_contributed": partitions, "max_contributions_per_partition": 1}
    shop.write(**many_groups(shop.folder, epsilon, **bounds))
    assert call("run", shop.job, "--output", shop.folder / "out").code == 0
    content = json.loads((shop.folder / "out" / "manifest.json").read_text())
    described = content["stages"][0]
    statistics = described["metrics"]["revenue"]["statistics"]
    assert {said["noise"] for said in statistics.values()} == {law}
    assert sorted(statistics) == [
        "rows",
        "sum(price in [0.0, 20.0], values from the middle)",
    ]  # shares rows with the count
    assert described["derived"]["basket"]["interval"] == how
    price = np.asarray(pa.parquet.read_table(shop.folder / "rows.parquet").column("price")).reshape(GROUPS, SIZE)
    truth = price.sum(axis=1) / SIZE
    found = table_of(shop.folder / "out")
    for name, exact in (("basket", truth), ("twice", 2 * truth + 1)):
        low, high = (np.asarray(found.column(f"{name}_{end}"), np.float64) for end in ("noise_low", "noise_high"))
        known = np.isfinite(low)
        assert known.mean() > 0.99
        assert 0.93 <= float(np.mean(((low <= exact) & (exact <= high))[known])) <= 0.97
    # Noise that is shared, and taken for independent, would be found.
    noise = part_noise.noise_of(["revenue", "orders"], described["metrics"])
    assert isinstance(noise, part_noise.PartNoise)
    assert noise.shares[0, 1] > 0.5


def test_a_page_of_a_release_with_ranges_has_them_of_computed_numbers_too(shop: Shop, call: Call) -> None:
    made = computing({"basket": BASKET, "twice": TWICE}, kept={"share": 0.3, "each_metric": True})
    shop.write(stages=made, budget={"epsilon": 30.0, "delta": 1e-5})
    assert call("run", shop.job, "--output", shop.folder / "out").code == 0
    found = table_of(shop.folder / "out")
    assert found.column_names[-6:] == [
        f"twice{end}" for end in ("", "_noise_low", "_noise_high", "_estimate", "_low", "_high")
    ]
    assert found.column("twice_high").null_count == found.num_rows
    content = json.loads((shop.folder / "out" / "manifest.json").read_text())
    assert content["stages"][0]["derived"]["twice"]["kept"]["why"].startswith("what the limits cut off is known of")


def test_what_a_manifest_says_is_what_the_job_computes(shop: Shop) -> None:
    job = job_file.load(str(shop.write(stages=computing({"basket": BASKET | {"label": "Basket"}})))).job
    said = presentation.of_job(job)["stages"]["weekly"]
    assert said == {"metrics": {"basket": {"label": "Basket"}}, "derived": {"basket": "revenue / orders"}}
