"""The benchmark of a model that nobody tuned: which tax units earn more than $50,000, with the library's defaults.

In: examples/tax_units/earners.yaml and the data of examples/tax_units/fetch.py. Out: docs/benchmarks/training_defaults.md;
progress on stderr; exit code 1 if a private model is further from the one without privacy than the goals allow. Holds: one plan
pays for the report, bins, moments, training and evaluation, at each epsilon; AUC is computed exactly, outside of the release,
over all held-out tax units. The model without privacy is logistic regression on the same encoding: bins are cut by the same rule,
at exact quantiles. Ranges, features and goals were written down before the first model was trained, and not changed since.

    python benchmarks/training_defaults.py [--splits 3] [--runs 5] [--quick] [--out docs/benchmarks]
"""

import argparse
import dataclasses
import pathlib
import sys
import tempfile
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import training_baselines
from gates import Gate, gates_table
from measure import REPOSITORY, say, versions
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from training import PACKAGES, Data, Result, judged, planned, row, trained, whole_columns

from dp_pipelines.jobs.request.request import Request, check
from dp_pipelines.jobs.spec import job_file
from dp_pipelines.plan_stages import training_parts
from dp_pipelines.planning.plan import Plan
from dp_pipelines.query.train_model import TrainModel
from dp_pipelines.training import stage_on_disk
from dp_pipelines.training.artefact import Artefact
from dp_pipelines.training.features.encoder import Encoder

JOB = REPOSITORY / "examples" / "tax_units" / "earners.yaml"
STAGE = "earners"
EPSILONS = (0.1, 0.3, 1.0, 3.0)
GOALS = {1.0: 0.002, 0.1: 0.01}
"""How much AUC may be lost beside the model without privacy, at most, by epsilon; a mean over all releases."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """Results on the held-out units.

    Args:
        private: by epsilon, those of all releases.
        logistic, trees: without privacy, one for each division; trees are left out by `--quick`.
        taken: by epsilon, what the defaults came to in each release.
        kept: by epsilon, of the first release on each division: how many columns were told from noise, and how good logistic
            regression without privacy is on these alone.
        units: all tax units.
        earn: the part of held-out units whose label is true.
    """

    private: Mapping[float, Sequence[Result]]
    logistic: Sequence[Result]
    trees: Sequence[Result]
    taken: Mapping[float, Sequence[Mapping[str, float]]]
    kept: Mapping[float, Sequence[tuple[int, Result]]]
    units: int
    earn: float


def mean_auc(found: Sequence[Result]) -> float:
    """The mean AUC."""
    return float(np.mean([one.auc for one in found]))


def judge(measured: Measured) -> list[Gate]:
    """The goals; an epsilon that was not measured has none."""
    best = mean_auc(measured.logistic)
    return [
        Gate(
            name=f"AUC lost at epsilon {epsilon:g}",
            figure=best - mean_auc(measured.private[epsilon]),
            limit=limit,
            unit="",
        )
        for epsilon, limit in GOALS.items()
        if epsilon in measured.private
    ]


def alone(stage: str, task: TrainModel, epsilon: float, delta: float) -> Plan:
    """The plan of a model that has the whole budget to itself."""
    return Plan(epsilon=epsilon, delta=delta, stages={stage: task})


def exact_encoder(
    plan: Plan, task: TrainModel, training: pa.Table, whole: frozenset[str], stage: str = STAGE
) -> Encoder:
    """The encoder that a release without noise would give: the same ranks and the same rule, at exact quantiles. Not private."""
    binned = training_parts.binned(task)
    metrics = plan.round(1).stages[training_parts.bins_of(stage)].query.metrics if binned else {}
    edges = {}
    for name, number in binned.items():
        column = training.column(number.column).cast(pa.float64()).drop_null().to_numpy()
        clipped = np.clip(column, number.min_value, number.max_value)
        found = np.quantile(clipped, metrics[name].quantiles, method="inverted_cdf")
        released = pa.table({name: [found.tolist()]})
        edges[name] = stage_on_disk.edges_of(released, name, number, whole=number.column in whole)
    return Encoder.of(task, edges=edges)


def without_privacy(request: Request, training: pa.Table, held_out: pa.Table, trees: bool) -> list[Result]:
    """Logistic regression on the same encoding and, where asked for, boosted trees on the features as they are."""
    plan, task = planned(request, 1.0, STAGE)
    encoder = exact_encoder(plan, task, training, whole_columns(request, STAGE))
    labels, true = encoder.labels(training), encoder.labels(held_out)
    found = [judged(training_baselines.logistic(encoder, training, held_out), true)]
    if trees:
        boosted = HistGradientBoostingClassifier(random_state=0)
        boosted.fit(training_baselines.plain(task, training), labels)
        found.append(judged(boosted.decision_function(training_baselines.plain(task, held_out)), true))
    return found


def on_kept_columns(model: Artefact, training: pa.Table, held_out: pa.Table) -> tuple[int, Result]:
    """How many columns a release has told from its noise, and logistic regression without privacy on these alone."""
    encoder, kept = model.encoder, np.any(model.whitening != 0, axis=1)
    linear = LogisticRegression(max_iter=1000).fit(encoder.encode(training)[:, kept], encoder.labels(training))
    scores = linear.decision_function(encoder.encode(held_out)[:, kept])
    return int(kept.sum()), judged(scores, encoder.labels(held_out))


def measure(data: Data, epsilons: Sequence[float], splits: int, runs: int, trees: bool) -> Measured:
    """Every model, on several divisions of the units, with several releases on each."""
    whole = whole_columns(data.request, STAGE)
    private: dict[float, list[Result]] = {epsilon: [] for epsilon in epsilons}
    taken: dict[float, list[Mapping[str, float]]] = {epsilon: [] for epsilon in epsilons}
    kept: dict[float, list[tuple[int, Result]]] = {epsilon: [] for epsilon in epsilons}
    others: list[list[Result]] = []
    units, earn = 0, []
    for number in range(splits):
        key = f"split {number}".encode()
        _, task = planned(data.request, 1.0, STAGE)
        training, held_out = data.parts(task, key)
        others.append(without_privacy(data.request, training, held_out, trees))
        say(f"split {number}, without privacy: " + ", ".join(f"AUC {one.auc:.4f}" for one in others[-1]))
        units = training.num_rows + held_out.num_rows
        earn.append(float(np.mean(held_out.column(task.label.column).to_numpy(zero_copy_only=False))))
        for epsilon in epsilons:
            plan, task = planned(data.request, epsilon, STAGE)
            for run in range(runs):
                model = trained(data, plan, task, key, run, whole)
                private[epsilon].append(judged(model.scores(held_out), model.encoder.labels(held_out)))
                taken[epsilon].append(model.taken)
                say(f"split {number}, epsilon {epsilon:g}: AUC {private[epsilon][-1].auc:.4f}")
                if run == 0:
                    kept[epsilon].append(on_kept_columns(model, training, held_out))
                    say(f"on its {kept[epsilon][-1][0]} columns without privacy: AUC {kept[epsilon][-1][1].auc:.4f}")
    return Measured(
        private=private,
        logistic=[one[0] for one in others],
        trees=[one[1] for one in others if trees],
        taken=taken,
        kept=kept,
        units=units,
        earn=float(np.mean(earn)),
    )


def taken_row(epsilon: float, taken: Sequence[Mapping[str, float]], kept: Sequence[tuple[int, Result]]) -> str:
    """A line of the table of settings: medians over releases."""
    clip, rate, averaged = (
        float(np.median([one[name] for one in taken])) for name in ("clip_norm", "learning_rate", "averaged")
    )
    columns, auc = np.median([number for number, _ in kept]), mean_auc([one for _, one in kept])
    return f"| {epsilon:g} | {clip:.1f} | {rate:g} | {averaged:g} | {columns:g} | {auc:.4f} |"


def page(measured: Measured, request: Request, splits: int, runs: int) -> str:
    """The page."""
    plan, task = planned(request, 1.0, STAGE)
    numbers = versions(pathlib.Path(sys.executable), PACKAGES)
    features, steps, width = len(task.features), task.steps.steps, task.width
    return "\n".join([
        "# A model that nobody tuned",
        "",
        "Written by `benchmarks/training_defaults.py`; do not edit.",
        "",
        f"The model predicts which of {measured.units:,} US tax units earn more than $50,000 a year in wages, as",
        f"{measured.earn:.0%} of them do, from {features} features: ages, how they file, who belongs to them, the state, and",
        "incomes other than wages (`examples/tax_units/earners.yaml`). The table is that of Tax-Calculator, made from the",
        f"Current Population Survey; each tax unit has one row. One (epsilon, {plan.delta:g}) covers two tables of counts, the",
        f"bins of features, second moments, {steps} training steps and the evaluation; each of the three stages has a",
        "third of it. **Nothing was tuned on these rows**: bins, shares, steps, clip norm, learning rate and averaging are",
        "the library's defaults, features and their ranges are public knowledge, and the goals were set before the first",
        "model was trained.",
        "",
        f"Means over {splits} divisions of the units, with {runs} releases each at every epsilon. Figures are exact, on all",
        "held-out units. Without privacy: logistic regression on the same encoding, with bins cut by the same rule at exact",
        "quantiles; boosted trees on the features as they are, with the defaults of scikit-learn.",
        "",
        gates_table(judge(measured), digits=4),
        "",
        "| trained with | AUC | its standard deviation | accuracy |",
        "|---|---:|---:|---:|",
        *(row(f"epsilon {epsilon:g} over everything", list(found)) for epsilon, found in measured.private.items()),
        row(training_baselines.LOGISTIC, list(measured.logistic)),
        row(training_baselines.TREES, list(measured.trees)),
        "",
        "The standard deviations are over divisions and releases together.",
        "",
        "What the defaults came to, which know the noise of the steps (docs/training.md). All models took",
        f"{steps} steps. A column whose released second moment is within its noise is left out: of {width}, as many",
        "are kept as the table says. Beside them stands logistic regression without privacy on these columns alone;",
        "what it lacks is lost before the first step. Medians, and a mean AUC. Columns are those of the first release",
        "on each division.",
        "",
        "| epsilon | clip norm | learning rate | steps averaged | columns kept | AUC on these without privacy |",
        "|---:|---:|---:|---:|---:|---:|",
        *(taken_row(epsilon, taken, measured.kept[epsilon]) for epsilon, taken in measured.taken.items()),
        "",
        "Versions: " + ", ".join(f"{name} {number}" for name, number in numbers.items()),
        "",
    ])  # fmt: skip


def main() -> int:
    """The command line. Returns the exit code."""
    parser = argparse.ArgumentParser(
        description="A private model with default settings, on data that nobody tuned them on."
    )
    parser.add_argument("--splits", type=int, default=3, help="divisions of the units (default 3)")
    parser.add_argument("--runs", type=int, default=5, help="releases on each, at every epsilon (default 5)")
    parser.add_argument("--quick", action="store_true", help="one release at each epsilon with a goal; writes no page")
    parser.add_argument("--out", type=pathlib.Path, default=REPOSITORY / "docs" / "benchmarks", help="folder to write")
    options = parser.parse_args()
    request = check(job_file.load(str(JOB)), [])
    with tempfile.TemporaryDirectory() as folder:
        data = Data(request, pathlib.Path(folder), STAGE)
        if options.quick:
            measured = measure(data, tuple(GOALS), 1, 1, trees=False)
        else:
            measured = measure(data, EPSILONS, options.splits, options.runs, trees=True)
            (options.out / "training_defaults.md").write_text(page(measured, request, options.splits, options.runs))
    gates = judge(measured)
    print(gates_table(gates, digits=4))
    return 0 if all(gate.holds for gate in gates) else 1


if __name__ == "__main__":
    sys.exit(main())
