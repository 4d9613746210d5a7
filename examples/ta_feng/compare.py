"""Show the private weekly report of Ta Feng beside the true one: a table on stdout and a plot.

THIS ONLY WORKS BECAUSE TA FENG IS PUBLIC. With data that need protection, a table of errors like this one is itself a
disclosure: it tells the true numbers. What may be known about a release's accuracy without looking at the data is in
the release already (the `_stddev` columns) and in `dp-pipelines plan`.

In: a published folder of weekly.yaml (`make demo`), the data of fetch.py, the job file for its bounds. Out: text, and a
PNG where --plot says. Holds: nothing is written into the release. Not covered: other jobs than weekly.yaml.

    python examples/ta_feng/compare.py [--release out/demo-weekly] [--plot out/demo-compare.png]
"""

import argparse
import pathlib
import sys
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import truth
import yaml

mpl.use("Agg")
from matplotlib import pyplot as plt

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
STAGE = "weekly"
LABELS = {"orders": "orders", "customers": "customers", "revenue": "revenue, NT$", "mean_price": "mean price, NT$"}
RELEASED, TRUE, BOUNDED = "#1f6f8b", "#222222", "#d1603d"

Floats = npt.NDArray[np.float64]


def read_release(folder: pathlib.Path) -> truth.Columns:
    """The published columns, with the partition's subclass under the name that truth.py uses."""
    table = pq.read_table(folder / f"{STAGE}.parquet").rename_columns({"PRODUCT_SUBCLASS": "subclass"})
    week = table["week"].cast(pa.timestamp("us")).cast(pa.date32())
    table = table.set_column(table.column_names.index("week"), "week", week)
    return {name: table[name].to_numpy() for name in table.column_names}


def read_bounds(job: pathlib.Path) -> truth.Bounds:
    """The bounds of the weekly stage and of its prices."""
    stage: dict[str, Any] = yaml.safe_load(job.read_text())["stages"][STAGE]
    return truth.Bounds(
        max_partitions=stage["bounds"]["max_partitions_contributed"],
        max_rows_per_partition=stage["bounds"]["max_contributions_per_partition"],
        low=stage["metrics"]["revenue"]["min_value"],
        high=stage["metrics"]["revenue"]["max_value"],
    )


def align(release: truth.Columns, report: truth.Columns) -> npt.NDArray[np.int64]:
    """For each released partition, its row in a true report.

    A private selection only ever releases partitions that somebody contributed to, so each is found.
    """
    position = {key: index for index, key in enumerate(truth.keys(report))}
    return np.array([position[key] for key in truth.keys(release)], dtype=np.int64)


def error_table(release: truth.Columns, exact: truth.Columns, bounded: truth.Columns) -> str:
    """One line a metric, over the released partitions. `exact` and `bounded` are aligned with `release`."""
    lines = [
        "| metric | true value, median | RMSE | of it from bounds | stated noise, median | relative error, median |",
        "|---|---|---|---|---|---|",
    ]
    for metric in truth.METRICS:
        true, error = exact[metric], release[metric] - exact[metric]
        bias = bounded[metric] - true
        cells = [
            metric,
            f"{np.median(true):,.0f}",
            f"{np.sqrt(np.mean(error**2)):,.1f}",
            f"{np.sqrt(np.mean(bias**2)):,.1f}",
            f"{np.median(release[f'{metric}_stddev'].astype(float)):,.1f}",
            f"{np.median(np.abs(error) / true):.0%}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def largest_table(release: truth.Columns, exact: truth.Columns, count: int) -> str:
    """The partitions with most released customers, released beside true."""
    lines = [
        "| subclass | week | customers ± noise | true | revenue ± noise | true | mean price | true |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in np.argsort(-release["customers"].astype(float))[:count]:
        one = {name: column[row] for name, column in release.items()}
        true = {name: column[row] for name, column in exact.items()}
        lines.append(
            f"| {one['subclass']} | {one['week']} | {one['customers']:,.0f} ± {one['customers_stddev']:,.0f} "
            f"| {true['customers']:,.0f} "
            f"| {one['revenue']:,.0f} ± {one['revenue_stddev']:,.0f} | {true['revenue']:,.0f} "
            f"| {one['mean_price']:,.0f} | {true['mean_price']:,.0f} |"
        )
    return "\n".join(lines)


def _series(axis: Any, subclass: str, release: truth.Columns, exact: truth.Columns, bounded: truth.Columns) -> None:
    """One subclass over time: released customers with two standard deviations, true and bounded lines."""
    everywhere = exact["subclass"] == subclass
    weeks = exact["week"][everywhere].astype("datetime64[D]")
    axis.plot(weeks, exact["customers"][everywhere], color=TRUE, linewidth=1, label="true")
    axis.plot(
        weeks, bounded["customers"][everywhere], color=BOUNDED, linewidth=1, linestyle="--", label="true, bounded"
    )
    kept = release["subclass"] == subclass
    axis.errorbar(
        release["week"][kept].astype("datetime64[D]"),
        release["customers"][kept].astype(float),
        yerr=2 * release["customers_stddev"][kept].astype(float),
        fmt="o",
        markersize=4,
        capsize=2,
        color=RELEASED,
        label="released, ± 2 stddev",
    )
    axis.set_title(f"subclass {subclass}: customers a week", fontsize=9)
    axis.set_ylim(bottom=0)
    axis.tick_params(axis="x", rotation=45)


def _scatter(axis: Any, metric: str, release: truth.Columns, bounded: truth.Columns, true: Floats) -> None:
    """Released against true, one point a partition."""
    axis.scatter(true, release[metric].astype(float), s=8, alpha=0.5, color=RELEASED, linewidths=0, label="released")
    axis.scatter(true, bounded[metric], s=4, alpha=0.5, color=BOUNDED, linewidths=0, label="true, bounded")
    top = float(np.quantile(true, 0.99)) * 1.15
    axis.plot([0, top], [0, top], color=TRUE, linewidth=0.8)
    axis.set_xlim(0, top)
    axis.set_ylim(min(0.0, float(np.min(release[metric].astype(float)))), top * 1.2)
    axis.set_title(LABELS[metric], fontsize=9)
    axis.set_xlabel("true")


def plot(
    path: pathlib.Path,
    release: truth.Columns,
    exact: truth.Columns,
    bounded: truth.Columns,
) -> None:
    """Four subclasses over time above, all released partitions below. The true reports hold all partitions."""
    rows = align(release, exact)
    names, weeks = np.unique(release["subclass"].astype(str), return_counts=True)
    shown = names[np.argsort(-weeks, kind="stable")][:4]
    figure, axes = plt.subplots(2, 4, figsize=(15, 7), layout="constrained")
    for axis, subclass in zip(axes[0], shown, strict=False):
        _series(axis, subclass, release, exact, bounded)
    for axis in axes[0][len(shown) :]:
        axis.set_visible(False)
    for axis, metric in zip(axes[1], truth.METRICS, strict=True):
        _scatter(axis, metric, release, {name: column[rows] for name, column in bounded.items()}, exact[metric][rows])
    axes[1][0].set_ylabel("released")
    for first in (axes[0][0], axes[1][0]):
        first.legend(fontsize=8, loc="best")
    figure.suptitle("Ta Feng, weekly report by product subclass: private release beside the truth (public data)")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(arguments: list[str] | None = None) -> int:
    """The command line. Returns the exit code."""
    parser = argparse.ArgumentParser(
        description="Show the private report of Ta Feng beside the true one (public data)."
    )
    parser.add_argument(
        "--release", type=pathlib.Path, default=REPOSITORY / "out" / "demo-weekly", help="published folder"
    )
    parser.add_argument("--data", type=pathlib.Path, default=REPOSITORY / "data" / "ta_feng", help="folder of fetch.py")
    parser.add_argument("--job", type=pathlib.Path, default=HERE / "weekly.yaml", help="job file, for its bounds")
    parser.add_argument(
        "--plot", type=pathlib.Path, default=REPOSITORY / "out" / "demo-compare.png", help="PNG to write"
    )
    options = parser.parse_args(arguments)
    try:
        release = read_release(options.release)
        exact, bounded = truth.exact(options.data), truth.bounded(options.data, read_bounds(options.job))
    except FileNotFoundError as error:
        print(f"compare.py: {error}; `make demo` fetches the data and publishes the report", file=sys.stderr)
        return 1
    print("This looks at the true numbers. It may, for Ta Feng is public; with private data it would publish them.\n")
    total = len(exact["subclass"])
    print(
        f"{len(release['subclass']):,} of {total:,} partitions (subclass, week) have enough customers to be released."
    )
    if len(release["subclass"]) == 0:
        return 0
    rows = align(release, exact)
    aligned_exact = {name: column[rows] for name, column in exact.items()}
    aligned_bounded = {name: column[rows] for name, column in bounded.items()}
    print(f"They hold {aligned_exact['orders'].sum() / exact['orders'].sum():.0%} of all orders.\n")
    print(error_table(release, aligned_exact, aligned_bounded), end="\n\n")
    print(largest_table(release, aligned_exact, 10), end="\n\n")
    plot(options.plot, release, exact, bounded)
    print(f"plot: {options.plot}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
