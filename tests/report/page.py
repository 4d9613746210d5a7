"""Pages to look at: tables as they are published, the manifest beside them, and a reader of HTML that keeps what it saw.

In: columns. Out: a page, and its elements in order. Holds: the page is made by `render` from a real Parquet file.
"""

import pathlib
import re
from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from dp_pipelines.metrics.error_bars import ERROR_BAR
from dp_pipelines.release.ranges import GROUP, KeptShare, ranges_of
from dp_pipelines.report.report import render

VOID = {"meta", "input", "br", "link", "img", "hr"}


class Page(HTMLParser):
    """The elements of a page with their attributes, and the text inside of some."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: list[tuple[tuple[str, ...], str]] = []
        self.ids: list[str] = []
        self.unbalanced: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.elements.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.unbalanced.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append((tuple(self.open), data))

    @property
    def shape(self) -> list[tuple[str, tuple[str, ...]]]:
        """Tags and the names of their attributes, in order: what a key must not be able to change."""
        return [(tag, tuple(attributes)) for tag, attributes in self.elements]

    def inside(self, *tags: str) -> list[str]:
        """The texts whose innermost elements are these."""
        return [text for path, text in self.texts if path[-len(tags) :] == tags]

    @property
    def plots(self) -> list[str]:
        """What the plots of the page say to those who do not see them, in order; small bars in a table are no plots."""
        found = (attributes for tag, attributes in self.elements if tag == "svg" and attributes.get("class") == "chart")
        return [str(attributes["aria-label"]) for attributes in found]

    @property
    def words(self) -> str:
        """What is read: all text outside of style and script, spaces made one."""
        return " ".join(" ".join(t for path, t in self.texts if path[-1:] not in (("style",), ("script",))).split())


def barriers(html: str) -> list[str]:
    """What keeps readers from the page who do not see it, or use no pointer: found without a browser."""
    read = Page(html)
    found, levels, names = [], [0], []
    for tag, attributes in read.elements:
        named = attributes.get("aria-label") or attributes.get("aria-labelledby")
        if re.fullmatch("h[1-6]", tag):
            if int(tag[1]) > levels[-1] + 1:
                found.append(f"{tag} after h{levels[-1]}")
            levels.append(int(tag[1]))
        if tag == "th" and attributes.get("scope") not in ("col", "row"):
            found.append("th without a scope")
        if attributes.get("role") in ("img", "region", "group") and not named:
            found.append(f"{tag} without a name")
        if attributes.get("role") == "region" or (tag == "section" and named):
            names.append(named)
        if int(attributes.get("tabindex") or 0) > 0:
            found.append(f"{tag} in an order of its own")
        if (label := attributes.get("aria-labelledby")) is not None and label not in read.ids:
            found.append(f"no {label}")
    found += [f"two regions {name}" for name in set(names) if names.count(name) > 1]
    found += [f"two ids {name}" for name in set(read.ids) if read.ids.count(name) > 1]
    tables = [tag for tag, _ in read.elements if tag in ("table", "caption")]
    return found + ["table without a caption"] * (tables.count("table") - tables.count("caption"))


def metric(name: str, values: Any, stddev: Any = 10.0) -> dict[str, pa.Array]:
    """The two columns of a metric."""
    array = pa.array(values, pa.float64())
    spread = pa.array(stddev if isinstance(stddev, list) else [stddev] * len(array), pa.float64())
    return {name: array, f"{name}_stddev": spread}


def page(folder: pathlib.Path, columns: Mapping[str, Any], content: Mapping[str, Any] | None = None) -> str:
    """The page of a release whose one stage `weekly` published these columns."""
    path = folder / "weekly.parquet"
    pa.parquet.write_table(pa.table(dict(columns)), path)
    return render(manifest() if content is None else content, {"weekly": path})


def groceries(weeks: int = 12, products: int = 9) -> dict[str, Any]:
    """A report as that of the demo: a product and a week, a count, a sum and a mean that is missing here and there."""
    days = np.datetime64("2026-01-05") + 7 * np.arange(weeks)
    at = np.arange(weeks * products)
    waves = 400 + 300 * np.sin(at) + 40 * (at // weeks)
    means: list[float | None] = [None if i % 7 == 0 else 3 + i % 4 for i in at.tolist()]
    return {
        "product": pa.array([f"product {i // weeks}" for i in at.tolist()]),
        "week": pa.array(np.tile(days, products)),
        **metric("orders", waves.tolist(), 80.0),
        **metric("revenue", (30 * waves).tolist(), 4000.0),
        **metric("mean_price", means, 1.0),
    }


def listed(values: Any, stddevs: Any) -> tuple[pa.Array, pa.Array]:
    """Rows of lists, and of the standard deviations of their numbers, as they are published."""
    shape = np.asarray(values, dtype=float)
    spread = np.broadcast_to(np.asarray(stddevs, dtype=float), shape.shape)
    return pa.array(shape.tolist(), pa.list_(pa.float64())), pa.array(spread.tolist(), pa.list_(pa.float64()))


def spread_groceries(weeks: int = 12, products: int = 9) -> dict[str, Any]:
    """A table with quantiles, a histogram over bins, one over categories and a median for each product and week."""
    columns = groceries(weeks, products)
    at = np.arange(weeks * products)[:, None]
    levels = 12 + 2 * np.sin(at / 3) + np.array([-8.0, -3.0, 0.0, 4.0, 11.0]) * (1 + 0.1 * np.cos(at))
    bins = 900 * np.exp(-((np.arange(8) - 2 - at % 3) ** 2) / 4) - 30 * (at % 4)
    kinds = (1 + at % 5) * np.array([400.0, 90.0, 20.0])
    for name, values, stddevs in (("basket", levels, 0.4), ("sizes", bins, 60.0), ("payment", kinds, 60.0)):
        columns[name], columns[f"{name}_stddev"] = listed(values, stddevs)
    return columns | metric("middle", levels[:, 2].tolist(), 0.4)


SPREAD = {
    "basket": {"kind": "quantiles", "quantiles": [0.1, 0.25, 0.5, 0.75, 0.9]},
    "sizes": {"kind": "histogram", "edges": [0, 5, 10, 20, 50, 100, 200, 500, 1000]},
    "payment": {"kind": "histogram", "categories": ["cash", "card", "<voucher>"]},
    "middle": {"kind": "median"},
}
"""What a manifest says of the metrics of `spread_groceries`."""


def spread_manifest(**metrics: Any) -> dict[str, Any]:
    """The manifest of `spread_groceries`, with entries of metrics changed."""
    content = manifest()
    (stage,) = content["stages"]
    return {**content, "stages": [{**stage, "metrics": {**stage["metrics"], **SPREAD, **metrics}}]}


KEPT: dict[str, Any] = {
    "share": 0.88,
    "stddev": 0.01,
    "divided_by": 0.88,
    "times": 2.0,
    "below": "512 rows",
    "why": None,
}
"""What a manifest says of a metric of which the limits keep 88%."""


def ranged(columns: Mapping[str, Any], name: str = "orders", kept: KeptShare | None = None) -> dict[str, Any]:
    """These columns with estimates and ranges of a metric."""
    made = pa.table(dict(columns))
    values, stddevs = (made[column].combine_chunks().to_numpy() for column in (name, f"{name}_stddev"))
    known = kept if kept is not None else KeptShare(share=KEPT["share"], stddev=KEPT["stddev"])
    found = ranges_of(values, ERROR_BAR * stddevs, known, GROUP)
    ends = {"estimate": found.estimate, "low": found.low, "high": found.high}
    return {**columns, **{f"{name}_{end}": pa.array(numbers) for end, numbers in ends.items()}}


def ranged_manifest() -> dict[str, Any]:
    """A manifest that says from what the ranges of `ranged` follow."""
    content = manifest()
    content["stages"][0]["metrics"]["orders"]["kept"] = KEPT
    content["stages"][0] |= {"kept": {}, "limits": ["at most 4 rows of one CUSTOMER_ID are counted"]}
    return content


def manifest(**changed: Any) -> dict[str, Any]:
    """The content of a manifest with a ledger."""
    return {
        "format": 1,
        "dataset": "grocery",
        "run_id": "2026-W12",
        "params": {"week": "2026-W12"},
        "plan": "100537306aea5d34",
        "privacy_unit": "value of CUSTOMER_ID",
        "guarantee": "adding or removing all rows changes the probability by at most a factor e^epsilon, and delta",
        "budget": {"epsilon": 1.0, "delta": 1e-6, "runs": 52},
        "accounted": {"epsilon": 0.99995, "delta": 1e-6},
        "accounted_one_run": {"epsilon": 0.1, "delta": 1e-6},
        "mechanisms": [
            {"stage": "weekly", "name": "rows", "kind": "gaussian", "scale": "1028/1", "l2_squared": 20000, "l0": 32},
            {"stage": "weekly", "name": "threshold", "kind": "delta", "delta": 5e-7},
        ],
        "versions": {"dp_pipelines": "0.1.0"},
        "ledger": {
            "id": "6f2b9a1c",
            "account": "grocery",
            "rule": "reserved",
            "head": {"seq": 12, "hash": "ab" * 32},
            "round": 3,
            "runs": 52,
            "cap": {"epsilon": 4.0, "delta": 1e-5},
            "spent": {"epsilon": 1.0, "delta": 1e-6},
            "left": {"epsilon": 3.0, "delta": 9e-6},
            "window": "",
            "note": "other ledgers are not counted",
        },
        "not_covered": ["timing and side channels", "one person under two privacy units"],
        "stages": [
            {
                "name": "weekly",
                "partition_by": ["product", "week"],
                "metrics": {"orders": {"kind": "count"}, "revenue": {"kind": "sum"}, "mean_price": {"kind": "mean"}},
                "selection": {"strategy": "gaussian", "half_keep_users": 203.2, "min_users": 20},
            }
        ],
    } | changed
