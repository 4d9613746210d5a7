"""An error bar that is called 95% covers 95% of its noise, whatever the law, and one module decides how long it is.

In: laws of noise, sums of several of them, a real release with Laplace noise, the source. Out: how much of it bars cover, and
the length of the bars that users see. Holds: what is simulated is drawn with a seed, or misses once in 1e9 runs; each check has a
twin that finds bars of 1.96 deviations. Not covered: what the limits cut off, samples, and models.
"""

import ast
import csv
import json
import math
import pathlib
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import dp_pipelines as dp
from dp_pipelines.metrics import error_bars
from dp_pipelines.metrics.error_bars import ERROR_BAR, LAPLACE_BAR, deviations_in_bar
from tests.helpers.source import modules
from tests.jobs.conftest import Said, Shop, stage

Call = Callable[..., Said]

DRAWS = 1_000_000
SLACK = 6.2 * math.sqrt(0.95 * 0.05 / DRAWS)
"""Of a share of 95%: fewer draws than that are inside once in 1e9 runs."""


def drawn(law: str, random: np.random.Generator) -> np.ndarray:
    """Draws of deviation 1."""
    return random.normal(size=DRAWS) if law == "gaussian" else random.laplace(size=DRAWS) / math.sqrt(2)


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_a_bar_covers_95_of_100_draws_of_its_law(law: str) -> None:
    noise = np.abs(drawn(law, np.random.default_rng(43)))
    share = np.mean(noise <= deviations_in_bar(law))
    assert abs(share - 0.95) <= SLACK
    if law == "laplace":
        assert np.mean(noise <= ERROR_BAR) < 0.95 - 8 * SLACK


@pytest.mark.parametrize(
    "parts",
    [
        [("laplace", 1.0), ("laplace", 1.0)],
        [("laplace", 1.0), ("laplace", 0.2)],
        [("laplace", 1.0)] * 12,
        [("laplace", 1.0), ("gaussian", 1.0)],
        [("laplace", 1.0), ("gaussian", 0.1)],
        [("laplace", 0.1), ("gaussian", 1.0)],
    ],
)
def test_a_bar_of_several_noises_covers_95_of_100_draws_or_more(parts: list[tuple[str, float]]) -> None:
    random = np.random.default_rng(43)
    noise = sum(factor * drawn(law, random) for law, factor in parts)
    deviation = math.hypot(*(factor for _, factor in parts))
    share = np.mean(np.abs(noise) <= deviations_in_bar("+".join(law for law, _ in parts)) * deviation)
    assert 0.95 - SLACK <= share <= 0.967


GROUPS = 50_000


def many_empty_groups(shop: Shop, epsilon: float) -> None:
    """A job of groups without rows, so that all of a number is noise."""
    rows = pa.table({"customer": [1], "group": [-1]})
    pa.parquet.write_table(rows, shop.folder / "rows.parquet")
    shop.write(
        budget={"epsilon": epsilon, "delta": 1e-9}, source={"parquet": "rows.parquet"},
        outputs={"files": [{"csv": {"interval": True}}]},
        stages={
            "weekly": stage(
                partition_by=["group"], partitions={"public": {"product": {"group": {"range": [1, GROUPS]}}}},
                bounds={"max_partitions_contributed": 1, "max_contributions_per_partition": 1},
                metrics={"n": {"kind": "count"}},
            )
        },
    )  # fmt: skip


@pytest.mark.parametrize("epsilon", [0.5, 30.0])
def test_bars_of_a_real_release_with_laplace_noise_hold_the_truth_in_95_of_100_groups(
    shop: Shop, call: Call, epsilon: float
) -> None:
    """Of 50,000 groups at least 94.4% are inside: a false alarm once in 1e9 runs. Bars of 1.96 deviations hold 93.8%."""
    many_empty_groups(shop, epsilon)
    said = call("run", shop.job, "--output", shop.folder / "out", "--ledger", "none")
    assert said.code == 0, said.err
    content = json.loads((shop.folder / "out" / "manifest.json").read_text())
    assert content["stages"][0]["metrics"]["n"]["noise"] == "laplace"
    lines = (shop.folder / "out" / "weekly.csv").read_text().splitlines()
    assert lines[0].replace('"', "").split(",") == ["group", "n", "n_stddev", "n_from", "n_to"]
    numbers = np.array([[float(cell) for cell in line.split(",")] for line in lines[1:]])
    least = 0.95 - 6.2 * math.sqrt(0.95 * 0.05 / GROUPS)
    inside = float(np.mean((numbers[:, 3] <= 0) & (numbers[:, 4] >= 0)))
    assert least <= inside <= 1.9 - least
    short = ERROR_BAR * numbers[:, 2]
    assert float(np.mean(np.abs(numbers[:, 1]) <= short)) < least
    verdict = content["stages"][0]["metrics"]["n"]["verdict"]
    assert verdict["clear"] == pytest.approx(GROUPS * (1 - inside), abs=1)
    assert verdict["by_chance"] == 0.05 * GROUPS


def test_terminal_page_and_session_have_bars_of_the_same_length(shop: Shop, call: Call) -> None:
    bounds = {"max_contributions_per_partition": 2}
    of_total = stage(metrics={"orders": {"kind": "count"}}, partition_by=[], bounds=bounds)
    shop.write(stages={"weekly": of_total}, budget={"epsilon": 0.01, "delta": 1e-9})
    said = call("run", shop.job, "--output", shop.folder / "out", "--ledger", "none")
    assert said.code == 0, said.err
    (row,) = pa.parquet.read_table(shop.folder / "out" / "weekly.parquet").to_pylist()
    bar = round(LAPLACE_BAR * row["orders_stddev"])
    assert bar - round(ERROR_BAR * row["orders_stddev"]) > 10
    assert f"± {bar}" in said.out
    page = (shop.folder / "out" / "report.html").read_text(encoding="utf-8")
    assert f"± {bar}" in page
    assert f"± {round(ERROR_BAR * row['orders_stddev'])}" not in page
    (table,) = dp.read_release(shop.folder / "out").tables.values()
    ends = table.to_arrow(bars=True).to_pylist()[0]
    assert ends["orders_to"] - ends["orders"] == pytest.approx(LAPLACE_BAR * row["orders_stddev"])


@pytest.mark.parametrize("rounded", [False, True])
def test_intervals_of_numbers_with_a_range_end_there_in_files_and_notebooks(
    shop: Shop, call: Call, rounded: bool
) -> None:
    bounds = {"max_partitions_contributed": 1, "max_contributions_per_partition": 1}
    of_price = {"column": "price", "min_value": 1.0, "max_value": 20.0}
    metrics = {kind: {"kind": kind, **of_price} for kind in ("mean", "variance")}
    metrics["quantiles"] = {"kind": "quantiles", "quantiles": [0.1, 0.9], **of_price}
    public = {"public": [[f"p{number}"] for number in range(40)]}
    of_groups = stage(metrics=metrics, partition_by=["product"], partitions=public, bounds=bounds)
    shop.write(
        stages={"weekly": of_groups},
        outputs={"files": [{"csv": {"interval": True, "rounded": rounded}}]},
        budget={"epsilon": 1.0, "delta": 1e-6},
    )
    said = call("run", shop.job, "--output", shop.folder / "out", "--ledger", "none")
    assert said.code == 0, said.err
    rows = list(csv.DictReader((shop.folder / "out" / "weekly.csv").open(encoding="utf-8")))
    bars = pa.parquet.read_table(shop.folder / "out" / "weekly.parquet").to_pylist()
    passed = 0
    for name, ends in {"mean": (1.0, 20.0), "variance": (0.0, 9.5**2), "quantiles": (1.0, 20.0)}.items():
        for row, bar in zip(rows, bars, strict=True):
            low, high = (np.atleast_1d(json.loads(row[f"{name}_{end}"])) for end in ("from", "to"))
            assert ((low >= ends[0]) & (low <= high) & (high <= ends[1])).all(), (name, row)
            far = ERROR_BAR * np.atleast_1d(bar[f"{name}_stddev"])
            passed += int((np.atleast_1d(bar[name]) - far < ends[0]).any())
    assert passed > 40  # so that the twin without a range would be seen
    (table,) = dp.read_release(shop.folder / "out").tables.values()
    for row in table.to_arrow(bars=True).to_pylist():
        assert 1.0 <= row["mean_from"] <= row["mean_to"] <= 20.0


def literals(path: pathlib.Path) -> Iterator[float]:
    """The numbers of a module."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, float):
            yield node.value


def is_a_bar(number: float) -> bool:
    """Whether a number is the 97.5% point of a normal or a Laplace law, to two digits after the point."""
    return any(abs(number - point) < 0.005 for point in (ERROR_BAR, LAPLACE_BAR))


def test_no_other_module_knows_how_long_a_bar_is() -> None:
    own = pathlib.Path(error_bars.__file__)
    paths = list(modules().values())
    found = {path.name: number for path in paths if path != own for number in literals(path) if is_a_bar(number)}
    assert len(paths) > 500
    assert not found, "use metrics.error_bars: " + str(found)
    assert any(map(is_a_bar, literals(own)))
