"""Public keys as products and ranges are the same keys as a written list; all others may be one group; wrong ones are refused.

In: job files over small files. Out: exact counts before the noise, digests of plans, refusals. Holds: nothing is spent where a
request is refused. Not covered: how keys of files are read (`tests/jobs/spec/test_job_file.py`).
"""

import itertools
import json
import pathlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from dp_pipelines import ContributionBounds, Count, Plan, PublicPartitions, Query
from dp_pipelines.jobs.request.request import Request, check
from dp_pipelines.jobs.run import run as running
from dp_pipelines.jobs.spec import job_file
from dp_pipelines.jobs.spec.public_keys import MOST_PUBLIC, ProductModel
from dp_pipelines.kernels.columns.listed_keys import AT_ONCE
from tests.helpers import file_pairs, neighbours
from tests.helpers.extension_folders import needs
from tests.jobs.conftest import Said, Shop, stage

Call = Callable[..., Said]

TYPES = {"who": "string", "text": "string", "hour": "int64", "day": "date", "at": "timestamp"}
ROWS = [
    f"u{number},{text},{hour},2026-01-{1 + number % 9:02d},2026-01-{1 + number % 9:02d} 00:00:00"
    for number, (text, hour) in enumerate(itertools.product(["DE", "FR", "DE", ""], range(-1, 5)))
]
WIDE = {"max_partitions_contributed": 9, "max_contributions_per_partition": 9}


def counts(folder: pathlib.Path, partitions: Any, by: list[str], **changes: Any) -> dict[Any, int]:
    """Return the rows of each partition before the noise."""
    made = {"partition_by": by, "partitions": partitions, "bounds": WIDE, "metrics": {"rows": {"kind": "count"}}}
    job = {"source": {"csv": "rows", "types": TYPES}, "stage": {**made, **changes}}
    runs = file_pairs.Runs(file_pairs.Case(name="keys", csv=True, job=job), folder)
    seen = runs.seen("\n".join([",".join(TYPES), *ROWS, ""]).encode())
    assert not seen.public["failure"]
    return {key: sums[0] for key, sums in neighbours.exact(seen.totals).items()}


@pytest.mark.parametrize(
    ("columns", "product", "listed"),
    [
        (
            ["text", "hour"],
            {"hour": {"range": [0, 2]}, "text": ["FR", "DE", None]},
            [[text, hour] for text in (None, "DE", "FR") for hour in (2, 0, 1)],
        ),
        (["hour"], {"hour": {"range": [-1, 4], "step": 5}}, [[-1], [4]]),
        (["hour"], {"hour": {"range": [3, 3]}}, [[3]]),
        (["day"], {"day": {"range": ["2026-01-02", "2026-01-08"], "step": 3}}, [[f"2026-01-0{n}"] for n in (5, 8, 2)]),
        (["at"], {"at": {"range": ["2026-01-01", "2026-01-08"], "step": 7}}, [["2026-01-01"], ["2026-01-08"]]),
        (["day"], {"day": {"range": ["2025-12-30", "2026-01-01"]}}, [["2025-12-30"], ["2025-12-31"], ["2026-01-01"]]),
    ],
    ids=["two columns", "a step", "one value", "days", "times at midnight", "over the end of a year"],
)
def test_a_product_counts_the_rows_that_a_list_of_the_same_keys_counts(
    tmp_path: pathlib.Path, columns: list[str], product: Any, listed: Any
) -> None:
    one, two = (
        counts(tmp_path / name, {"public": public}, columns)
        for name, public in (("product", {"product": product}), ("list", listed))
    )
    assert one == two
    assert len(one) == len(listed)
    if columns == ["text", "hour"]:
        shown = Counter((text or None, int(hour)) for _, text, hour, _, _ in (row.split(",") for row in ROWS))
        assert one == {(repr(text), repr(hour)): shown[text, hour] for text, hour in map(tuple, listed)}


def asked(shop: Shop, of_stage: dict[str, object]) -> Request:
    """Return the checked job of one stage."""
    return check(job_file.load(str(shop.write(stages={"s": of_stage}))), [])


def digest(shop: Shop, partitions: Any, by: list[str]) -> str:
    request = asked(shop, stage(partition_by=by, partitions=partitions))
    return running.plan_of(request.file, request.queries).digest


@pytest.mark.parametrize("length", [3, AT_ONCE + 1], ids=["a few", "more than are Python values at once"])
def test_the_same_keys_are_the_same_plan_however_they_are_written(shop: Shop, length: int) -> None:
    listed = [[name, number] for number in range(length, 0, -1) for name in ("p1", "p0")]
    forms = [
        {"public": listed},
        {"public": {"product": {"store": {"range": [1, length]}, "product": ["p0", "p1"]}}},
        {"public": {"product": {"product": ["p1", "p0"], "store": list(range(1, length + 1))}}},
    ]
    assert len({digest(shop, form, ["product", "store"]) for form in forms}) == 1
    bounds = ContributionBounds(max_partitions_contributed=3, max_contributions_per_partition=2)
    query = Query(
        privacy_unit="customer", partition_by=["product", "store"], bounds=bounds, metrics={"n": Count()},
        partitions=PublicPartitions(keys=list(itertools.product(["p0", "p1"], range(1, length + 1)))),
    )  # fmt: skip
    counted = {"metrics": {"n": {"kind": "count"}}}
    from_job = asked(shop, stage(partition_by=["product", "store"], partitions=forms[1], **counted))
    assert (
        Plan(epsilon=1.0, stages={"s": query}).digest == Plan(epsilon=1.0, stages={"s": from_job.queries["s"]}).digest
    )


@pytest.mark.slow
def test_a_product_of_ten_million_keys_is_made_without_a_value_for_each() -> None:
    made = ProductModel.model_validate({"product": {"text": ["DE"], "number": {"range": [1, MOST_PUBLIC]}}})
    listed = made.keys(["number", "text"])
    assert (len(listed), listed[0], listed[-1]) == (MOST_PUBLIC, (1, "DE"), (MOST_PUBLIC, "DE"))


OTHER = {"public": [["DE"], [None]], "other": True}


def test_rows_of_keys_that_are_not_listed_are_one_group_apart_from_a_listed_null(tmp_path: pathlib.Path) -> None:
    found = counts(tmp_path / "null", OTHER, ["text"])
    assert found == {("'DE'", "False"): 12, ("None", "False"): 6, ("None", "True"): 6}
    found = counts(tmp_path / "no null", {"public": [["DE"]], "other": True}, ["text"])
    assert found == {("'DE'", "False"): 12, ("None", "True"): 12}


def test_the_other_group_is_one_for_all_columns_of_a_product(tmp_path: pathlib.Path) -> None:
    partitions = {"public": {"product": {"text": ["DE", "FR"], "hour": {"range": [0, 1]}}}, "other": True}
    found = counts(tmp_path / "job", partitions, ["text", "hour"])
    listed = {(f"'{text}'", str(hour), "False"): n for text, n in (("DE", 2), ("FR", 1)) for hour in (0, 1)}
    assert found == {**listed, ("None", "None", "True"): len(ROWS) - 6}


def test_a_metric_of_the_partition_column_sees_the_keys_of_other_rows(tmp_path: pathlib.Path) -> None:
    metrics = {"texts": {"kind": "distinct_count", "column": "hour"}}
    found = counts(tmp_path / "job", {"public": [[0]], "other": True}, ["hour"], metrics=metrics)
    assert found == {("0", "False"): 1, ("None", "True"): 5}  # hours -1 and 1 to 4


def test_the_other_group_is_one_of_those_that_the_bounds_count(tmp_path: pathlib.Path) -> None:
    """One person in four groups that are not listed, and in one that is: two groups in all."""
    lines = [f"eve,{text},0,2026-01-01,2026-01-01 00:00:00" for text in ("FR", "IT", "ES", "", "DE") for _ in range(3)]
    for most, rows, expected in ((2, 1, 2), (2, 2, 4), (1, 1, 1)):
        bounds = {"max_partitions_contributed": most, "max_contributions_per_partition": rows}
        made = {"partition_by": ["text"], "partitions": {"public": [["DE"]], "other": True}, "bounds": bounds}
        job = {"source": {"csv": "rows", "types": TYPES}, "stage": made}
        runs = file_pairs.Runs(file_pairs.Case(name="keys", csv=True, job=job), tmp_path / f"{most} {rows}")
        seen = runs.seen("\n".join([",".join(TYPES), *lines, ""]).encode())
        found = {key: sums[0] for key, sums in neighbours.exact(seen.totals).items()}
        assert sum(found.values()) == expected
        assert max(found.values()) <= rows


def test_the_other_group_is_published_with_a_column_of_its_own_and_without_an_estimate(shop: Shop, call: Call) -> None:
    metrics = {
        "orders": {"kind": "count"},
        "people": {"kind": "privacy_id_count"},
        "revenue": {"kind": "sum", "column": "price", "min_value": 0, "max_value": 20},
        "price": {"kind": "mean", "column": "price", "min_value": 0, "max_value": 20},
    }
    kept = {"share": 0.2, "each_metric": True}
    bounds = {"max_partitions_contributed": 3, "max_contributions_per_partition": 8}
    of_stage = stage(partitions={"public": [["p0"], ["p1"]], "other": True}, metrics=metrics, kept=kept, bounds=bounds)
    path = shop.write(budget={"epsilon": 30.0, "delta": 1e-5}, stages={"weekly": of_stage})
    planned = call("plan", path)
    assert "one group of all other keys, for which product_is_other is true" in " ".join(planned.out.split())
    said = call("run", path, "--output", shop.folder / "out")
    assert said.code == 0, said.err
    assert "(all others)" in said.out
    table = pyarrow.parquet.read_table(shop.folder / "out" / "weekly.parquet")
    assert table.schema.field("product_is_other").type == pa.bool_()
    assert table.select(["product", "product_is_other"]).to_pylist() == [
        {"product": "p0", "product_is_other": False},
        {"product": "p1", "product_is_other": False},
        {"product": None, "product_is_other": True},
    ]
    rows = pa.concat_tables(pyarrow.parquet.read_table(p) for p in sorted((shop.folder / "data").iterdir()))
    exact = Counter(name if name in ("p0", "p1") else None for name in rows.column("product").to_pylist())
    released = dict(zip(table.column("product").to_pylist(), table.column("orders").to_pylist(), strict=True))
    for name, number in exact.items():
        assert 0.9 * number < released[name] < 1.1 * number
    *_, other = table.to_pylist()
    assert [other[f"{name}_{end}"] for name in metrics for end in ("estimate", "high")] == [None] * 8
    assert all(row[f"{name}_estimate"] is not None for row in table.to_pylist()[:2] for name in metrics)
    manifest = json.loads((shop.folder / "out" / "manifest.json").read_text())
    (entry,) = (one for one in manifest["stages"] if one["name"] == "weekly")
    assert entry["selection"]["other"] == "product_is_other"
    assert "all other keys" in entry["metrics"]["orders"]["kept"]["why"]
    page = (shop.folder / "out" / "report.html").read_text()
    assert '<i class="nothing">all others</i>' in page
    assert "The row <i>all others</i> is for everything that is not in the list." in page


@pytest.mark.parametrize("bounds", ["auto", {"max_partitions_contributed": "auto", "partition_candidates": [1, 3]}])
def test_bounds_that_a_run_chooses_go_with_the_other_group(shop: Shop, call: Call, bounds: Any) -> None:
    paid = {"kind": "sum", "column": "price", "min_value": 0, "max_value": "auto", "within": [0, 100]}
    partitions = {"public": [["p0"], ["p1"]], "other": True}
    bounds = bounds if bounds == "auto" else {**bounds, "max_contributions_per_partition": 8}
    path = shop.write(stages={"weekly": stage(partitions=partitions, metrics={"paid": paid}, bounds=bounds)})
    said = call("run", path, "--output", shop.folder / "out")
    assert said.code == 0, said.err
    table = pyarrow.parquet.read_table(shop.folder / "out" / "weekly.parquet")
    assert table.column("product").to_pylist() == ["p0", "p1", None]


def test_a_file_of_keys_and_a_query_take_other_too(shop: Shop) -> None:
    (shop.folder / "keys.csv").write_text("product\np1\np0\n")
    forms = [{"public_file": "keys.csv", "other": True}, {"public": [["p0"], ["p1"]], "other": True}]
    one, two = (digest(shop, form, ["product"]) for form in forms)
    assert one == two != digest(shop, {"public": [["p0"], ["p1"]]}, ["product"])
    plain = digest(shop, {"public": [["p0"], ["p1"]]}, ["product"])
    assert plain == digest(shop, {"public": [["p0"], ["p1"]], "other": False}, ["product"])


def product(**columns: Any) -> dict[str, Any]:
    """Return partitions that are a product."""
    return {"public": {"product": columns}}


P = "partitions.public.product"

REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "a range that ends before it begins": (product(store={"range": [9, 1]}), f"{P}.store.range", "[1, 9]"),
    "a range without ends": (product(store={"range": []}), f"{P}.store.range", "write e.g. {range:"),
    "a range of one end": (product(store={"range": [1]}), f"{P}.store.range", "write e.g. {range:"),
    "a range without a range": (product(store={}), f"{P}.store.range", "is missing"),
    "ends that are no whole numbers": (
        product(store={"range": [0.0, 3.0]}), f"{P}.store.range", "two whole numbers, or two days",
    ),
    "an end that is a truth": (product(store={"range": [False, 3]}), f"{P}.store.range", "two whole numbers"),
    "ends of two kinds": (product(store={"range": [1, "2026-01-05"]}), f"{P}.store.range", "two whole numbers"),
    "ends that are times": (
        product(store={"range": ["2026-01-05T10:00", "2026-01-05T12:00"]}), f"{P}.store.range", "two days",
    ),
    "ends beyond 64 bits": (product(store={"range": [0, 2**63]}), f"{P}.store.range", "64 bits"),
    "a step that misses the end": (
        product(store={"range": [0, 10], "step": 4}), f"{P}.store.range", "end with 8, or change step",
    ),
    "a step of days that misses the end": (
        product(store={"range": ["2026-01-01", "2026-01-10"], "step": 7}), f"{P}.store.range", "2026-01-08",
    ),
    "a step of nothing": (product(store={"range": [0, 10], "step": 0}), f"{P}.store.step", "at least 1"),
    "an unknown key of a range": (
        product(store={"range": [0, 10], "by": 1}), f"{P}.store.by", "known keys: range, step",
    ),
    "days for numbers": (
        product(store={"range": ["2026-01-01", "2026-01-02"]}), "partitions.public", "not of the column's type int32",
    ),
    "more keys than memory holds": (
        product(store={"range": [1, MOST_PUBLIC + 1]}), P, "10,000,001 keys, and at most 10,000,000",
    ),
    "as many keys as there are whole numbers": (
        product(store={"range": [-(2**63), 2**63 - 1]}), P, "has 18,446,744,073,709,551,616 keys",
    ),
    "a value twice": (product(store=[1, 2, 1]), f"{P}.store", "lists a value twice: 1"),
    "no values": (product(store=[]), f"{P}.store", "must not be empty"),
    "values that are no list": (product(store=1), f"{P}.store", "must be a list"),
    "values of two kinds": (product(store=[1, "2"]), f"{P}.store", "lists values of different kinds"),
    "values that are lists": (product(store=[[1]]), f"{P}.store.0", "must be a plain value"),
    "no columns": (product(), P, "must not be empty"),
    "other columns": (product(product=["p0"]), P, "must have the columns of partition_by: [store]"),
    "a column more": (product(store=[1], product=["p0"]), P, "it has store, product"),
    "a product beside a list": (
        {"public": [[1]], "product": {"store": [1]}}, "partitions.product", "write public: {product:",
    ),
    "a product beside a file": (
        {**product(store=[1]), "public_file": "keys.parquet"}, "partitions", "must hold one of",
    ),
    "a range without a column": ({"public": {"range": [0, 23]}}, "partitions.public.range", "write public: {product:"),
    "other beside private groups": (
        {"private": {}, "other": True}, "partitions.other", "the rest of a rollup has all that are not published",
    ),
    "other beside a list on disk": (
        {"public_sorted_file": "keys.parquet", "other": True}, "partitions.other", "for a public list in memory",
    ),
    "other alone": ({"other": True}, "partitions", "must hold one of"),
    "other that is no truth": ({"public": [[1]], "other": "yes"}, "partitions.other", "must be true or false"),
}  # fmt: skip


@pytest.mark.parametrize(("partitions", "field", "words"), REFUSED.values(), ids=REFUSED)
def test_wrong_keys_are_refused_at_their_line_and_nothing_is_spent(
    shop: Shop, call: Call, partitions: dict[str, Any], field: str, words: str
) -> None:
    path = shop.write(stages={"s": stage(partition_by=["store"], partitions=partitions)})
    said = call("run", path, "--output", shop.folder / "out")
    assert said.code == 2
    place = f"stages.s.{field}: "
    assert any(place in line and words in line for line in said.err.splitlines()), said.err
    assert f"{path}:" in said.err
    assert shop.charged() == 0
    assert not (shop.folder / "out").exists()


BESIDE_OTHER: dict[str, tuple[dict[str, Any], str, str]] = {
    "a rollup": ({"rollup": [[], ["product"]]}, "rollup", "which is in no group of a coarser level"),
    "arms": (
        {"compare": {"by": "product", "baseline": "p0", "metrics": ["orders"]}}, "compare", "which is no arm",
    ),
    "the best": ({"metrics": {"n": {"kind": "count"}}, "best": {"k": 1, "by": "n"}}, "best", "which is none to choose"),
    "a column of its name that the stage reads": (
        {"metrics": {"n": {"kind": "sum", "column": "product_is_other", "min_value": 0, "max_value": 1}}},
        "partitions.other", "adds a column 'product_is_other', and the stage reads 'product_is_other'",
    ),
    "a metric of its name": (
        {"metrics": {"product_is_other": {"kind": "count"}}}, "metrics.product_is_other", "rename the metric",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "field", "words"), BESIDE_OTHER.values(), ids=BESIDE_OTHER)
def test_what_other_cannot_be_combined_with_is_refused_at_its_line(
    shop: Shop, call: Call, changes: dict[str, Any], field: str, words: str
) -> None:
    partitions = {"public": [["p0"], ["p1"]], "other": True}
    path = shop.write(
        columns={"product_is_other": "store > 1"} if "reads" in words else {},
        stages={"s": stage(partitions=partitions, **changes)},
    )
    said = call("run", path, "--output", shop.folder / "out")
    assert said.code == 2
    assert any(f"{path}:" in line and f"stages.s.{field}: " in line and words in line for line in said.err.splitlines())
    assert shop.charged() == 0


def test_other_is_refused_where_the_rows_have_its_column(shop: Shop, call: Call) -> None:
    path = shop.write(
        columns={"product_is_other": "store > 1"},
        stages={
            "s": stage(partitions={"public": [["p0"]], "other": True}),
            "t": stage(partition_by="product_is_other"),
        },
    )
    said = call("plan", path)
    assert said.code == 2
    assert "stages.s.partitions.other: adds a column 'product_is_other', which the rows have" in said.err
    assert "product_is_other" in (shop.folder / "job.yaml").read_text()


@pytest.mark.parametrize(("wide", "code"), [(True, 2), (False, 0)])
def test_a_grid_has_no_column_for_the_other_group(shop: Shop, call: Call, wide: bool, code: int) -> None:
    partitions = {"public": [["p0", 1]], "other": True}
    path = shop.write(
        outputs={"files": [{"csv": {"wide": wide}}]},
        stages={"s": stage(partition_by=["product", "store"], partitions=partitions)},
    )
    said = call("plan", path)
    assert said.code == code
    assert wide is ("has a group of all other keys, which is in no column of a grid" in said.err)


def test_clamps_by_partition_and_parties_are_refused_beside_other(shop: Shop, call: Call) -> None:
    pa.parquet.write_table(pa.table({"product": ["p0"], "most": [1.0]}), shop.folder / "most.parquet")
    clamped = {"kind": "sum", "column": "price", "min_value": 0, "max_value": {"lookup": "most", "default": 1}}
    partitions = {"public": [["p0"]], "other": True}
    by_lookup = {"lookup": {"parquet": "most.parquet", "on": "product"}}
    said = call("plan", shop.write(**by_lookup, stages={"s": stage(partitions=partitions, metrics={"paid": clamped})}))
    assert said.code == 2
    assert "stages.s.partitions.other: makes one partition of keys whose rows have different bounds" in said.err
    members = {name: {"address": f"{name}.example.org:4433"} for name in ("north", "south")}
    notary = {"notary": {"address": "notary.example.org:4433", "rows": False}}
    together = {"parties": {"people": "disjoint", "members": {**members, **notary}}}
    said = call("plan", shop.write(**together, stages={"s": stage(partitions=partitions)}))
    assert said.code == 2
    assert ": parties: cannot be combined with the partition of all other keys" in said.err


@needs("sql_select")
def test_a_statement_takes_a_list_and_all_others(shop: Shop, call: Call) -> None:
    (shop.folder / "keys.csv").write_text("product\np0\np1\n")
    given = [
        "sql", "SELECT product, count(*) AS n FROM orders GROUP BY product", "--dataset", "shop", "--unit", "customer",
        "--epsilon", 1, "--delta", 1e-6, "--source", shop.folder / "data" / "*.parquet", "--plan", "--other",
        "--max-partitions-contributed", 2, "--max-contributions-per-partition", 2,
    ]  # fmt: skip
    said = call(*given, "--public-file", shop.folder / "keys.csv")
    assert said.code == 0, said.err
    assert "product_is_other is true" in " ".join(said.out.split())
    said = call(*given)
    assert said.code == 2
    assert "--other: needs a list of groups; add --public-file FILE" in said.err
