"""Numbers on the axes of charts and beside marks: the format and the unit of the metric, separators, the declared range.

In: pages of made-up tables. Out: the texts of their charts. Not covered: where marks are drawn (`test_list_charts`).
"""

import pathlib
import re
from typing import Any

import numpy as np
import pytest

from tests.report.page import Page, groceries, listed, manifest, metric, page


def marked(html: str) -> list[str]:
    """The texts of charts, those of axes among them."""
    return Page(html).inside("svg", "text")


@pytest.mark.parametrize("shape", ["over time", "bars", "panels", "heat map", "quantiles over time", "quantiles"])
def test_charts_write_numbers_in_the_format_of_the_metric(tmp_path: pathlib.Path, shape: str) -> None:
    shares: dict[str, Any] = {
        "over time": groceries(12, 1),
        "bars": {"city": list("abc")},
        "panels": {"city": list("aabb"), "shop": list("xyxy")},
        "heat map": {"row": [f"r{i % 13}" for i in range(169)], "across": [f"c{i // 13}" for i in range(169)]},
        "quantiles over time": groceries(12, 1),
        "quantiles": {"city": ["a", "b", "c"]},
    }[shape]
    keys = [name for name in shares if name in ("city", "shop", "row", "across", "product", "week")]
    count, quantiles = len(shares[keys[0]]), "quantiles" in shape
    values = 0.05 + 0.4 * np.arange(count) / count
    one = dict(zip(("part", "part_stddev"), listed(values[:, None] + [0.0, 0.1, 0.2], 0.01), strict=True))
    columns = one if quantiles else metric("part", values.tolist(), 0.01)
    table = {**{key: shares[key] for key in keys}, **columns}
    entry = {"kind": "quantiles", "quantiles": [0.1, 0.5, 0.9]} if quantiles else {"kind": "mean"}
    stages = [{**manifest()["stages"][0], "partition_by": keys, "metrics": {"part": entry}}]
    as_percent = {"presentation": {"stages": {"weekly": {"metrics": {"part": {"format": ".1%"}}}}}}
    html = page(tmp_path, table, manifest(stages=stages) | as_percent)
    texts = [text.strip() for text in marked(html) if text.strip()]
    shades = re.findall(r'aria-hidden="true"><i class="heat-\d"></i>([^<]*)', html)
    numbers = shades if shape == "heat map" else [text for text in texts if re.match(r"[\d.]+%?( |$)", text)]
    assert numbers
    assert all("%" in number for number in numbers)
    plain = page(tmp_path, table, manifest(stages=stages))
    assert not [text for text in marked(plain) if "%" in text]


@pytest.mark.parametrize("size", [1.0, 1234567.0, 4.1e9, 8.7e13])
@pytest.mark.parametrize("form", [None, ",.0f", ".2f"])
def test_no_number_of_a_chart_has_an_exponent_and_large_ones_have_separators_or_words(
    tmp_path: pathlib.Path, size: float, form: str | None
) -> None:
    stages = [{**manifest()["stages"][0], "metrics": {"orders": {"kind": "sum"}}}]
    said = {"measure": "EUR"} | ({} if form is None else {"format": form})
    shown = {"presentation": {"stages": {"weekly": {"metrics": {"orders": said}}}}}
    for products in (1, 3):
        table = groceries(12, products)
        waves = (size * (1 + np.arange(len(table["product"])) % 5)).tolist()
        table = {"product": table["product"], "week": table["week"], **metric("orders", waves, size / 20)}
        texts = marked(page(tmp_path, table, manifest(stages=stages) | shown))
        assert not [text for text in texts if re.search(r"\de[+-]?\d|\d[GMk]\b", text)]
        assert not [text for text in texts if re.fullmatch(r"\d{5,}(\.\d+)?", text)]
        word = "billion" if 1e9 <= 5 * size < 1e12 else "trillion" if size > 1e12 else "million" if size > 1e6 else ""
        assert f"{word} EUR".strip() in texts


@pytest.mark.parametrize("over_time", [True, False])
def test_no_axis_runs_beyond_the_declared_range_of_its_values(tmp_path: pathlib.Path, over_time: bool) -> None:
    quantiles = {"kind": "quantiles", "quantiles": [0.1, 0.5, 0.9], "range": [20, 80]}
    entries = {"basket": quantiles, "middle": {"kind": "median", "range": [20, 80]}}
    keys = {"week": [f"2026-W0{week}" for week in range(1, 6)]} if over_time else {"city": list("abcde")}
    levels = np.tile([21.0, 50.0, 79.0], (5, 1))
    basket = dict(zip(("basket", "basket_stddev"), listed(levels, 25.0), strict=True))
    table = {**keys, **basket, **metric("middle", [50.0, 51.0, 52.0, 53.0, 79.0], 25.0)}
    stages = [{**manifest()["stages"][0], "partition_by": list(keys), "metrics": entries}]
    texts = marked(page(tmp_path, table, manifest(stages=stages)))
    ticks = [float(text) for text in texts if re.fullmatch(r"-?\d+(\.\d+)?", text)]
    assert ticks
    assert max(ticks) <= 80
    assert min(ticks) >= (20 if over_time else 0)  # bars start at zero
