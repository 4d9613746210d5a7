"""Public keys as products and ranges: they are the same keys as a written list, and what is wrong with them is said at its line.

In: job files over small files. Out: exact counts before the noise, digests of plans, refusals. Holds: nothing is spent where a
request is refused. Not covered: how keys of files are read (`tests/jobs/spec/test_job_file.py`).
"""

import itertools
import pathlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from dp_pipelines import ContributionBounds, Count, Plan, PublicPartitions, Query
from dp_pipelines.jobs.request.request import Request, check
from dp_pipelines.jobs.run import run as running
from dp_pipelines.jobs.spec import job_file
from dp_pipelines.jobs.spec.public_keys import MOST_PUBLIC, ProductModel
from dp_pipelines.kernels.columns.listed_keys import AT_ONCE
from tests.helpers import file_pairs, neighbours
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
