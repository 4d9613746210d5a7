"""A quantile among candidates in a job file: printed, published without a standard deviation, shown in the report.

In: the shop. Out: published folders. Holds: runs are real. Not covered: the law of the choice (tests/metrics/test_quantile.py).
"""

import html
import re
from collections.abc import Callable

import pyarrow.parquet
import pytest

from tests.jobs.conftest import Said, Shop, stage

Call = Callable[..., Said]
TYPICAL = {"kind": "quantile", "column": "price", "quantile": 0.5, "candidates": [0, 5.25, 10.25, 15.25, 20]}


@pytest.mark.parametrize("method", ["auto", "exponential", "tree"])
def test_a_chosen_quantile_is_published_and_shown_without_an_error_bar(shop: Shop, call: Call, method: str) -> None:
    job = shop.write(stages={"typical": stage(metrics={"middle": {**TYPICAL, "method": method}})})
    said = call("plan", job)
    assert said.code == 0, said.err
    assert ("permute_and_flip" in said.out) == (method != "tree")
    said = call("run", job, "--output", shop.folder / "out")
    assert said.code == 0, said.err
    released = pyarrow.parquet.read_table(shop.folder / "out" / "typical.parquet")
    # Prices are even between 0 and 20, with 1,600 in each product: the middle one is far ahead of the others.
    assert released["middle"].to_pylist() == [10.25] * 5
    assert released["middle_stddev"].null_count == 5
    assert "10.25" in said.out
    page = html.unescape(re.sub("<[^>]*>", " ", (shop.folder / "out" / "report.html").read_text()))
    assert page.count(" 10.25 ") >= 5


def test_candidates_that_do_not_rise_are_refused_with_their_line(shop: Shop, call: Call) -> None:
    said = call("plan", shop.write(stages={"typical": stage(metrics={"middle": {**TYPICAL, "candidates": [2, 1]}})}))
    assert said.code == 2
    assert "candidates" in said.err
    assert "must be above the one before" in said.err
