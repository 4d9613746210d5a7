"""Would boosted additive models do better? Ours beside those of `interpret`, on three tables, with and without privacy.

In: the data of the fetch.py of examples/ta_feng, tax_units and first_hour. Out: docs/benchmarks/training_boosted.md; progress on
stderr; exit code 1 if boosting is so much better somewhere that we should have it. Holds: all models see the same features of
the same rows, one row of each unit, and the same units are held out; (1, 1e-6) covers all that a private model reads, its bins
included; AUC is exact. Needs .venv-interpret (`make .venv-interpret/installed`).

    python benchmarks/training_boosted.py [--splits 2] [--runs 3] [--out docs/benchmarks]
"""

import argparse
import dataclasses
import json
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
import training_baselines
import training_defaults
from errors import Floats
from gates import Gate, gates_table
from measure import REPOSITORY, BenchmarkError, say, versions
from training import Data, auc, planned, trained, whole_columns

from dp_pipelines.jobs.request.request import check
from dp_pipelines.jobs.spec import job_file
from dp_pipelines.query.train_model import Category, TrainModel

INTERPRET = REPOSITORY / ".venv-interpret" / "bin" / "python"
PEER = REPOSITORY / "benchmarks" / "peers" / "dp_boosting.py"
EPSILON, DELTA = 1.0, 1e-6
BETTER = 0.003
"""By so much AUC a boosted model has to be better on one table, to be worth a second kind of model."""

OURS, PAIR = "linear over bins, (1, 1e-6)", "the same with the declared pair, (1, 1e-6)"
BOOSTED = "boosted additive, (1, 1e-6)"
OURS_EXACT, BOOSTED_EXACT = "linear over bins, without privacy", "boosted additive, without privacy"
MODELS = (OURS, PAIR, BOOSTED, OURS_EXACT, BOOSTED_EXACT)

CARRIERS = ["9E", "AA", "AS", "B6", "DL", "EV", "F9", "FL", "HA", "MQ", "OO", "UA", "US", "VX", "WN", "YV"]

FLIGHTS = {
    "dataset": "flights",
    "privacy_unit": "id",
    "budget": {"epsilon": EPSILON, "delta": DELTA},
    "source": {"parquet": "flights.parquet"},
    "stages": {
        "late": {
            "kind": "train",
            "max_examples_per_unit": 1,
            "label": {"kind": "binary", "column": "late"},
            "features": {
                "month": {"kind": "category", "categories": list(range(1, 13))},
                "weekday": {"kind": "category", "categories": list(range(1, 8))},
                "hour": {"kind": "number", "min_value": 0, "max_value": 24},
                "distance": {"kind": "number", "min_value": 0, "max_value": 5000},
                "origin": {"kind": "category", "categories": ["EWR", "JFK", "LGA"]},
                "carrier": {
                    "kind": "category",
                    "categories": CARRIERS,
                },
            },
        }
    },
}  # fmt: skip
"""Which flights that landed were more than 30 minutes late: a flight is a unit."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """One table.

    Args:
        title: for the page.
        job: its job file.
        stage: the train stage.
        pair: two features that a person who knows the field would cross, declared before anything was trained.
    """

    title: str
    job: pathlib.Path
    stage: str
    pair: tuple[str, str]


class OneRowEach:
    """The rows of a table, one for each unit, as `training.trained` reads them."""

    def __init__(self, data: Data, task: TrainModel) -> None:
        table = pa.concat_tables(data.tables())
        (unit,) = task.unit_columns
        order = np.random.default_rng(20261124).permutation(table.num_rows)
        keys = table.column(unit).combine_chunks().dictionary_encode().indices.to_numpy()[order]
        self.table = table.take(order[np.unique(keys, return_index=True)[1]])
        self.stage, self._data = data.stage, data

    def tables(self) -> Iterator[pa.Table]:
        """All rows."""
        yield self.table

    def parts(self, task: TrainModel, key: bytes) -> tuple[pa.Table, pa.Table]:
        """Training and held-out rows."""
        training, held_out = self._data.parts(task, key)
        (unit,) = task.unit_columns
        found = []
        for part in (training, held_out):
            found.append(self.table.filter(pc.is_in(self.table.column(unit), pc.unique(part.column(unit)))))
        return found[0], found[1]


def flights(folder: pathlib.Path) -> pathlib.Path:
    """The job file of the flights, and their rows, in a folder."""
    read = pyarrow.csv.read_csv(
        REPOSITORY / "data" / "first_hour" / "flights.csv",
        convert_options=pyarrow.csv.ConvertOptions(null_values=["NA"], column_types={"arr_delay": pa.float64()}),
    )
    day = pc.day_of_week(pc.strptime(pc.binary_join_element_wise(
        *(pc.cast(read.column(name), pa.string()) for name in ("year", "month", "day")), "-"
    ), format="%Y-%m-%d", unit="s"), count_from_zero=False)  # fmt: skip
    columns = {name: read.column(name) for name in ("month", "hour", "distance", "origin", "carrier")}
    columns |= {"weekday": day, "late": pc.greater(read.column("arr_delay"), 30), "id": np.arange(read.num_rows)}
    landed = pa.table(columns).filter(pc.is_valid(read.column("arr_delay")))
    pyarrow.parquet.write_table(landed, folder / "flights.parquet")
    path = folder / "flights.json"
    path.write_text(json.dumps(FLIGHTS))
    return path


def boosted(task: TrainModel, training: pa.Table, held_out: pa.Table, labels: Floats, private: bool) -> Floats:
    """Scores of the held-out rows by the peer."""
    features = list(task.features.values())
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        ends = np.array(
            [(0, 0) if isinstance(of, Category) else (of.min_value, of.max_value) for of in features], float
        )
        clipped = [
            np.where([isinstance(of, Category) for of in features], part, np.clip(part, ends[:, 0], ends[:, 1]))
            for part in (training_baselines.plain(task, training), training_baselines.plain(task, held_out))
        ]
        np.savez(
            folder / "rows.npz", rows=clipped[0], held_out=clipped[1], labels=labels, low=ends[:, 0], high=ends[:, 1],
            nominal=[isinstance(of, Category) for of in features],
        )  # fmt: skip
        command = [str(INTERPRET), str(PEER), str(folder), *([str(EPSILON), str(DELTA)] if private else [])]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BenchmarkError(f"the peer failed with exit code {done.returncode}:\n{done.stderr[-2_000:]}")
        scores: Floats = np.load(folder / "scores.npy")
    return scores


def measure(table: Table, splits: int, runs: int) -> dict[str, list[float]]:
    """The AUC of each model, by division and release."""
    request = check(job_file.load(str(table.job)), [])
    found: dict[str, list[float]] = {name: [] for name in MODELS}
    with tempfile.TemporaryDirectory() as folder:
        data = Data(request, pathlib.Path(folder), table.stage)
        _, task = planned(request, EPSILON, table.stage)
        task = dataclasses.replace(task, max_examples_per_unit=1, weighting=None, evaluation_examples=None)
        rows, whole = OneRowEach(data, task), whole_columns(request, table.stage)
        crossed = dataclasses.replace(task, pairs=[table.pair])
        for number in range(splits):
            key = f"split {number}".encode()
            training, held_out = rows.parts(task, key)
            plan = training_defaults.alone(table.stage, task, EPSILON, DELTA)
            encoder = training_defaults.exact_encoder(plan, task, training, whole, table.stage)
            labels, true = encoder.labels(training), encoder.labels(held_out)
            exact = training_baselines.logistic(encoder, training, held_out)
            found[OURS_EXACT].append(auc(exact, true))
            found[BOOSTED_EXACT].append(auc(boosted(task, training, held_out, labels, False), true))
            for run in range(runs):
                for name, asked in ((OURS, task), (PAIR, crossed)):
                    own = training_defaults.alone(table.stage, asked, EPSILON, DELTA)
                    model = trained(rows, own, asked, key, run, whole)
                    found[name].append(auc(model.scores(held_out), true))
                found[BOOSTED].append(auc(boosted(task, training, held_out, labels, True), true))
            say(f"{table.title}, division {number}: " + ", ".join(f"{name} {found[name][-1]:.4f}" for name in MODELS))
    return found


def judge(found: Mapping[str, Mapping[str, Sequence[float]]]) -> list[Gate]:
    """By how much boosting is better, table by table."""
    return [
        Gate(
            name=f"AUC that boosting adds: {title}",
            figure=float(np.mean(of[BOOSTED]) - np.mean(of[OURS])),
            limit=BETTER,
            unit="",
        )
        for title, of in found.items()
    ]


def page(tables: Sequence[Table], found: Mapping[str, Mapping[str, Sequence[float]]], splits: int, runs: int) -> str:
    """The page."""
    peer = versions(INTERPRET, ["interpret-core"])["interpret-core"]
    lines = [
        "# Boosted additive models beside linear ones",
        "",
        "Written by `benchmarks/training_boosted.py`; do not edit.",
        "",
        "A linear model over the bins of its features is additive: it can take any step function of each feature. Boosting",
        "looks for the same functions in another way, tree by tree. Without privacy, the two differ in how finely they cut;",
        "with privacy, in how much noise they need. Ours are trained with the defaults of the library, boosted ones with",
        f"those of `interpret` ({peer}), interactions off. One row of each unit; ({EPSILON:g}, {DELTA:g}) for each",
        f"private model, its bins included. Mean AUC over {splits} divisions, with {runs} releases each.",
        "",
        "| | " + " | ".join(found) + " |",
        "|---|" + "---:|" * len(found),
        *(f"| {name} | " + " | ".join(f"{np.mean(of[name]):.4f}" for of in found.values()) + " |" for name in MODELS),
        "",
        "The pair, declared beforehand: "
        + "; ".join(f"{one.title}: `[{', '.join(one.pair)}]`" for one in tables)
        + ".",
        "",
        f"We would add boosting if it were better by {BETTER:g} on one of these tables.",
        "",
        gates_table(judge(found), digits=4),
        "",
    ]
    return "\n".join(lines)


def main() -> int:
    """The command line. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Boosted additive models beside ours.")
    parser.add_argument("--splits", type=int, default=2, help="divisions of the units (default 2)")
    parser.add_argument("--runs", type=int, default=3, help="releases on each (default 3)")
    parser.add_argument("--out", type=pathlib.Path, default=REPOSITORY / "docs" / "benchmarks", help="folder to write")
    options = parser.parse_args()
    if not INTERPRET.exists():
        raise BenchmarkError("the peer needs .venv-interpret, which `make .venv-interpret/installed` sets up")
    examples = REPOSITORY / "examples"
    with tempfile.TemporaryDirectory() as folder:
        tables = [
            Table(
                title="tax units", job=examples / "tax_units" / "earners.yaml", stage="earners", pair=("age", "filing")
            ),
            Table(
                title="Ta Feng", job=examples / "ta_feng" / "customers.yaml", stage="returns", pair=("rate", "tenure")
            ),
            Table(title="flights", job=flights(pathlib.Path(folder)), stage="late", pair=("hour", "month")),
        ]
        found = {table.title: measure(table, options.splits, options.runs) for table in tables}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "training_boosted.md").write_text(page(tables, found, options.splits, options.runs))
    print(gates_table(judge(found), digits=4))
    return 0 if all(gate.holds for gate in judge(found)) else 1


if __name__ == "__main__":
    sys.exit(main())
