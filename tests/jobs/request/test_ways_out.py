"""A refusal names a way out that works."""

from typing import Any

import pytest

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.request.request import check
from dp_pipelines.jobs.spec import job_file
from tests.jobs.conftest import Shop, stage

WEIGHTED = {"kind": "sum", "column": "price", "min_value": 0, "max_value": 1}
INFINITE = {"kind": "histogram", "column": "price", "edges": [0, float("inf")]}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"budget": {"epsilon": 0, "delta": 1e-6}}, "no switch turns the noise off: --synthetic"),
        ({"columns": {"customer": "store"}}, "the unit's columns are those of the source"),
        ({"stages": {"s": stage(metrics={"n": INFINITE})}}, "write numbers that no value passes"),
        (
            {"stages": {"s": stage(metrics={"n": {**WEIGHTED, "weight_column": "store"}})}},
            "for means: {kind: mean, column: v, weight",
        ),
        (
            {"stages": {"s": stage(metrics={"n": {**WEIGHTED, "weight": "store"}})}},
            "for a weighted sum define a column w \\* v",
        ),
        ({"stages": {"s": stage(partitions={"public": [["p1"], ["p0"], ["p1"]]})}}, "partition twice: \\[p1\\]"),
    ],
)
def test_what_is_refused_says_what_to_do_instead(shop: Shop, changes: dict[str, Any], words: str) -> None:
    shop.write(**changes)
    with pytest.raises(RequestError, match=words):
        check(job_file.load(str(shop.job)), [])


def test_a_unit_that_a_lookup_would_add_is_refused_as_such(shop: Shop) -> None:
    (shop.folder / "lookup.csv").write_text("product,household\np0,1\n")
    shop.write(privacy_unit="household", lookup={"csv": "lookup.csv", "on": "product"})
    with pytest.raises(RequestError, match="of the privacy unit; the unit's columns are those of the source"):
        check(job_file.load(str(shop.job)), [])
