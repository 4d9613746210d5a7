"""The benchmark of quantiles: prices of Ta Feng under (1, 1e-6), beside PipelineDP's and OpenDP's, the same rows for all.

In: the data of examples/ta_feng/fetch.py. Out: docs/benchmarks/quantiles.md; progress on stderr; exit code 1 if the error is
more than 0.8 of the better peer's. Holds: all systems get the rows that one bounding leaves, the same range, bounds and
budget; a peer counts with the best of its variants, chosen after the fact. Needs .venv-peers. Takes some minutes.

    python benchmarks/quantiles.py [--runs 30] [--out docs/benchmarks]
"""

import argparse
import dataclasses
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from errors import Floats, mean_interval, ratio_interval
from measure import PEERS_PYTHON, REPOSITORY, BenchmarkError, say, versions

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "peers"))
from quantile_releases import Request

from dp_pipelines.kernels import contributions
from dp_pipelines.kernels.layout import Layout

OURS, PIPELINEDP, OPENDP = "dp_pipelines", "PipelineDP", "OpenDP"
SCRIPTS = {
    OURS: (pathlib.Path(sys.executable), "quantiles_ours.py"),
    PIPELINEDP: (PEERS_PYTHON, "quantiles_pipelinedp.py"),
    OPENDP: (PEERS_PYTHON, "quantiles_opendp.py"),
}
DATA = REPOSITORY / "data" / "ta_feng"
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
BOUNDS = {"max_partitions": 8, "max_rows": 2}
BUDGET = {"epsilon": 1.0, "delta": 1e-6}
LOW, HIGH = 0.0, 1000.0
PARTITIONS = 20
# Which subclasses by their number of rows; fixed here, as a shop's catalogue would be.
LISTS = {"the 20 largest subclasses": 0, "subclasses 81 to 100 by size": 80}
GOAL = 0.8

Errors = dict[
    tuple[str, str], tuple[Floats, Floats]
]  # (system, variant) -> mean absolute errors of each run: price, rank


def bounded(first: int, path: pathlib.Path) -> list[Floats]:
    """Write the rows that bounding leaves of some subclasses; their prices by partition."""
    table = pq.read_table(DATA, columns=["CUSTOMER_ID", "PRODUCT_SUBCLASS", "SALES_PRICE"])
    sizes = table.group_by("PRODUCT_SUBCLASS").aggregate([([], "count_all")])
    sizes = sizes.sort_by([("count_all", "descending"), ("PRODUCT_SUBCLASS", "ascending")])
    listed = sizes["PRODUCT_SUBCLASS"].combine_chunks().slice(first, PARTITIONS)
    rows = pa.table({
        "unit": table["CUSTOMER_ID"],
        "partition": pc.index_in(table["PRODUCT_SUBCLASS"], listed),
        "price": table["SALES_PRICE"].cast(pa.float64()),
    }).drop_null()  # fmt: skip
    # The row is its own id: which of a customer's rows stay must not depend on the tree of one system.
    rows = rows.append_column("row", pa.array(np.arange(rows.num_rows)))
    layout = Layout(
        units=("unit",),
        partitions=("partition",),
        row_id="row",
        max_partitions=BOUNDS["max_partitions"],
        max_rows_per_partition=BOUNDS["max_rows"],
    )
    wire = layout.wire(rows)
    kept = rows.take(pa.array(np.sort(contributions.bound(wire, layout, 1).bounded.rows))).drop_columns(["row"])
    pq.write_table(kept, path)
    partition, price = kept["partition"].to_numpy(), np.clip(kept["price"].to_numpy(), LOW, HIGH)
    return [np.sort(price[partition == number]) for number in range(PARTITIONS)]


def release(system: str, request: Request, folder: pathlib.Path) -> dict[str, Floats]:
    """All variants of one system: (runs, partitions, quantiles)."""
    python, script = SCRIPTS[system]
    wanted, answer = folder / f"{system}.json", folder / f"{system}.parquet"
    wanted.write_text(json.dumps(dataclasses.asdict(request)))
    command = [str(python), str(pathlib.Path(__file__).parent / "peers" / script), str(wanted), str(answer)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchmarkError(f"{system} failed:\n{done.stderr[-2_000:]}")
    table = pq.read_table(answer)
    found: dict[str, list[Floats]] = {}
    for variant, values in zip(table["variant"].to_pylist(), table["values"].to_pylist(), strict=True):
        found.setdefault(variant, []).append(np.asarray(values))
    return {variant: np.clip(np.stack(values), LOW, HIGH) for variant, values in found.items()}


def errors(released: Floats, prices: list[Floats]) -> tuple[Floats, Floats]:
    """Of each run the mean absolute error, of the price and of its rank, over partitions and quantiles."""
    truth = np.stack([np.quantile(of, QUANTILES) for of in prices])
    ranks = np.empty(released.shape)
    for number, of in enumerate(prices):
        below, upto = (np.searchsorted(of, released[:, number], side=side) / len(of) for side in ("left", "right"))
        ranks[:, number] = np.maximum(np.maximum(below - QUANTILES, QUANTILES - upto), 0.0)
    return np.abs(released - truth).mean(axis=(1, 2)), 100 * ranks.mean(axis=(1, 2))


def measured(first: int, runs: int) -> tuple[Errors, list[Floats]]:
    """The errors of all systems on one list of partitions."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        prices = bounded(first, folder / "rows.parquet")
        request = Request(
            rows=str(folder / "rows.parquet"),
            partitions=PARTITIONS,
            quantiles=QUANTILES,
            runs=runs,
            low=LOW,
            high=HIGH,
            **BUDGET,
            **BOUNDS,
        )
        found: Errors = {}
        for system in SCRIPTS:
            for variant, values in release(system, request, folder).items():
                found[system, variant] = errors(values, prices)
                say(f"{system}, {variant}: {mean_interval(found[system, variant][0])}")
    return found, prices


def section(title: str, found: Errors, prices: list[Floats]) -> tuple[str, bool]:
    """The part of the page on one list, and whether the goal is met."""
    lines = [
        f"## {title[0].upper()}{title[1:]}",
        "",
        f"{min(map(len, prices)):,} to {max(map(len, prices)):,} rows per partition after bounding.",
        "",
        "| system | variant | error of the price | error of the rank, percent |",
        "|---|---|---|---|",
    ]
    for (system, variant), (price, rank) in sorted(found.items(), key=lambda item: item[1][0].mean()):
        lines.append(f"| {system} | {variant} | {mean_interval(price)} | {mean_interval(rank)} |")
    best = min((key for key in found if key[0] != OURS), key=lambda key: found[key][0].mean())
    ratio = ratio_interval(found[OURS, "tree"][0], found[best][0])
    met = ratio.value <= GOAL
    verdict = "met" if met else "**missed**"
    lines += ["", f"dp_pipelines / best peer ({best[0]}, {best[1]}): {ratio}; goal at most {GOAL}: {verdict}.", ""]
    return "\n".join(lines), met


def main(arguments: list[str] | None = None) -> int:
    """The command line. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Quantiles on Ta Feng beside PipelineDP and OpenDP.")
    parser.add_argument("--runs", type=int, default=30, help="releases of each variant (default 30)")
    parser.add_argument("--out", type=pathlib.Path, default=REPOSITORY / "docs" / "benchmarks", help="folder to write")
    options = parser.parse_args(arguments)
    if not options.runs >= 2:
        parser.error("--runs must be at least 2")
    try:
        subprocess.run([sys.executable, str(REPOSITORY / "examples" / "ta_feng" / "fetch.py")], check=True)
        if not PEERS_PYTHON.exists():
            raise BenchmarkError("the peers need .venv-peers, which `make bench` sets up (Python 3.11 to 3.13)")
        parts = [section(title, *measured(first, options.runs)) for title, first in LISTS.items()]
    except (BenchmarkError, subprocess.CalledProcessError) as error:
        say(f"quantiles.py: {error}")
        return 1
    good = all(met for _, met in parts)
    peers = versions(PEERS_PYTHON, ["pipeline-dp", "python-dp", "opendp"])
    head = f"""# How accurate quantiles are

Written by `benchmarks/quantiles.py`; do not edit.

Five quantiles ({", ".join(map(str, QUANTILES))}) of the price in each of {PARTITIONS} public partitions of Ta Feng, under
({BUDGET["epsilon"]:g}, {BUDGET["delta"]:g}), with at most {BOUNDS["max_partitions"]} partitions per customer,
{BOUNDS["max_rows"]} rows in each, and prices within [{LOW:g}, {HIGH:g}]. Each variant makes {options.runs} releases. The tables
show mean absolute errors against the quantiles of the bounded rows. These are the same for all systems, so the error comes
from the noise and the tree. Intervals are 95% over the releases (Student; bootstrap for the ratio). The error of the rank is
how far the released price is from a price of the wanted rank, in percent of the rows.

PipelineDP uses its quantile tree (height 4, 16 children) with the whole budget of its naive accountant. OpenDP uses its b-ary
tree (4,096 leaves, 16 children), made consistent, and one exponential mechanism per quantile over the same candidates,
at the smallest scales that its privacy maps allow. The best variant of each peer was chosen after the fact, in its favour.
The branching of dp_pipelines' tree (4 children, 6 levels) was settled on these prices and on simulated ones;
its budget is that of one metric, for all quantiles together. Not covered: a single quantile, for which an
exponential mechanism needs no tree, and the quantiles 0 and 1.
"""
    tail = ", ".join(f"{name} {version}" for name, version in peers.items()) + ".\n"
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "quantiles.md").write_text("\n".join([head, *(text for text, _ in parts), tail]))
    say(f"written: {options.out / 'quantiles.md'}; the goal is {'met' if good else 'MISSED'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
