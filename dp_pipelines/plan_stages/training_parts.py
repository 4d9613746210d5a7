"""The parts of a train stage: what it releases, step by step, each a stage of its own in the one plan.

In: what a model learns. Out: a query for each part, with its share of the budget. Holds: all parts but the evaluation read the
training units alone, the evaluation reads the held-out units alone: two groups of units, of which each unit is in one, whatever
other units do (docs/proofs/accounting.md, lemma 7). Not covered: running them (`dp_pipelines.training`).
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

from dp_pipelines.errors import RequestError
from dp_pipelines.metrics.base import Basis, Metric
from dp_pipelines.metrics.clipped_sums import ClippedSums
from dp_pipelines.metrics.counts import Count, PrivacyIdCount
from dp_pipelines.metrics.histogram import Histogram
from dp_pipelines.metrics.quantiles import Quantiles
from dp_pipelines.metrics.sums import Sum
from dp_pipelines.plan_stages import one_partition, sharing
from dp_pipelines.plan_stages.sharing import Sharing
from dp_pipelines.query import fit_candidates
from dp_pipelines.query.best import Best
from dp_pipelines.query.federate_model import FederateModel, Rounds
from dp_pipelines.query.fit_candidates import CANDIDATE, SCORE
from dp_pipelines.query.models.pate_model import PateModel
from dp_pipelines.query.query import ContributionBounds, PrivatePartitions, PublicPartitions, Query, Top
from dp_pipelines.query.train_model import CELL as CELL
from dp_pipelines.query.train_model import EVALUATED, Category, Number, NumberLabel, TrainModel

TRAINING, HELD_OUT = "training", "held out"
"""The groups of units."""

BIN_EXAMPLES = 8
"""Examples of one unit that the bins of features are made from."""

VOCABULARY = 4
"""Values of a category that one unit may vote for, where it may have as many examples."""

CHOICE, BESIDE_CHOICE = 0.4, 0.5
"""The weights of a choice among candidates and of the evaluation beside it, as parts of what all that training releases has: each
then costs held-out units about half of what training costs the others, so that both groups pay nearly the same. Plans that a
ledger has frozen keep their shares, so that other numbers would be another rule (plan_stages.sharing)."""


TESTS = 0.2
"""The part of the budget of votes that tests of agreement have: one that errs leaves out an answer, or lets in one that is less
sure. The student learns from the answers, which have the rest."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """One part: its query, and its share of the budget."""

    query: Query
    share: float


def bins_of(name: str) -> str:
    """The name of the stage that releases the ends of the bins."""
    return f"{name}.bins"


def vocabulary_of(name: str, feature: str) -> str:
    """The name of the stage that selects the values of a category."""
    return f"{name}.vocabulary.{feature}"


def users_of(name: str) -> str:
    """The name of the stage that counts the training units, and their examples."""
    return f"{name}.users"


def moments_of(name: str) -> str:
    """The name of the stage that releases second moments."""
    return f"{name}.moments"


def evaluation_of(name: str) -> str:
    """The name of the stage that counts held-out examples by label and score."""
    return f"{name}.evaluation"


def tests_of(name: str) -> str:
    """The name of the stage that tests whether enough teachers agree."""
    return f"{name}.tests"


def steps_of(name: str, candidate: int) -> str:
    """The name of the stage with the steps of a candidate, counted from 1: the first has that of the train stage itself."""
    return name if candidate == 1 else f"{name}.candidate{candidate}"


def choice_of(name: str) -> str:
    """The name of the stage that chooses one of the candidates."""
    return f"{name}.choice"


def candidate_fits(name: str, task: TrainModel) -> dict[str, TrainModel]:
    """By stage that releases sums of gradients, the model as it is fitted there: one for each candidate.

    Args:
        name: of the train stage.
        task: what is learnt.
    """
    if task.steps.candidates is None:
        return {name: task}
    settings = enumerate(fit_candidates.settings(task.steps), 1)
    return {steps_of(name, number): dataclasses.replace(task, steps=steps) for number, steps in settings}


def all_fits(tasks: Mapping[str, TrainModel]) -> dict[str, TrainModel]:
    """The same of all train stages of a plan."""
    return {stage: fitted for name, task in tasks.items() for stage, fitted in candidate_fits(name, task).items()}


def meets(name: str, task: TrainModel) -> dict[str, str]:
    """The group of units that each part reads, by part."""
    held_out = (choice_of(name), evaluation_of(name))
    return {part: HELD_OUT if part in held_out else TRAINING for part in parts(name, task, 1.0)}


def binned(task: TrainModel) -> dict[str, Number]:
    """The features whose bins are released, by name."""
    found = {name: f for name, f in task.features.items() if isinstance(f, Number)}
    return {name: f for name, f in found.items() if f.released_edges}


def chosen(task: TrainModel) -> dict[str, Category]:
    """The features whose values are selected, by name."""
    found = {name: f for name, f in task.features.items() if isinstance(f, Category)}
    return {name: f for name, f in found.items() if f.most is not None}


def needs_sizes(task: TrainModel) -> bool:
    """Whether the numbers of training units and examples are released: rounds divide by a declared one, teachers by their own."""
    return not isinstance(task, PateModel) and (task.whiten or not isinstance(task, FederateModel))


def settled(task: TrainModel, rule: Sharing) -> TrainModel:
    """A task whose open questions have the answers that plans of a rule give."""
    if rule.units_count_once or task.weighting is not None:
        return task
    return dataclasses.replace(task, evaluation_examples=task.evaluation_examples or EVALUATED)


def refuse_other_answers(tasks: Mapping[str, TrainModel], counted: Mapping[str, int]) -> None:
    """Refuse tasks that are asked for as those of a frozen plan, and are not the same.

    Args:
        tasks: the train stages.
        counted: for each, how many examples of a held-out unit the plan counts.

    Raises:
        RequestError: it names the stage.
    """
    for name, most in counted.items():
        asked = tasks[name].counted_examples
        if asked != most:
            raise RequestError(
                field=f"stages.{name}.evaluation",
                message=f"counts {asked} examples of a unit, and {most} in the plan that is frozen for this job",
                hint=f"write max_examples_per_unit: {most}; or change the job in another way too, which makes a plan of its own",
            )


def parts(name: str, task: TrainModel, share: float, rule: Sharing = sharing.NOW) -> dict[str, Part]:
    """All parts of a train stage, in the order in which they run.

    Args:
        name: of the stage.
        task: what is learnt.
        share: of the budget.
        rule: how the parts share it. Those that prepare nothing for this model leave theirs to the others, where shares of the
            rule are parts of what adds up.

    >>> from dp_pipelines.query.train_model import BinaryLabel
    >>> task = TrainModel(privacy_unit="customer", label=BinaryLabel(column="returns"),
    ...                   features={"visits": Number(column="visits", min_value=0, max_value=60)})
    >>> list(parts("returns", task, 1.0))
    ['returns.bins', 'returns.users', 'returns.moments', 'returns', 'returns.evaluation']
    """
    if isinstance(task, PateModel):
        return _of_votes(name, task, share)
    wanted: list[tuple[float, str, Query]] = []
    if numbers := binned(task):
        metrics: dict[str, Metric] = {
            feature: Quantiles(
                number.column,
                quantiles=ranks(number.cells, rule.bin_ranks),
                min_value=number.min_value,
                max_value=number.max_value,
            )
            for feature, number in numbers.items()
        }
        wanted.append(
            (
                share * rule.training["bins"],
                bins_of(name),
                _over_all(task, metrics, min(BIN_EXAMPLES, task.max_examples_per_unit)),
            )
        )
    for feature, category in chosen(task).items():
        wanted.append(
            (
                share * rule.training["vocabulary"] / len(chosen(task)),
                vocabulary_of(name, feature),
                _votes(task, category, rule),
            )
        )
    sizes: dict[str, Metric] = {"users": PrivacyIdCount(), "examples": Count()}
    if needs_sizes(task):
        wanted.append(
            (share * rule.training["users"], users_of(name), _over_all(task, sizes, task.max_examples_per_unit))
        )
    if task.whiten:
        size = task.width * (task.width + 1) // 2
        wanted.append(
            (share * rule.training["moments"], moments_of(name), _over_all(task, {"moments": ClippedSums(size=size)}))
        )
    fitted = candidate_fits(name, task)
    for stage, of in fitted.items():
        wanted.append((share * rule.training["steps"] / len(fitted), stage, _over_all(task, {"steps": _sums(of)})))
    queries = {stage: query for _, stage, query in wanted}
    effective = {stage: part for part, stage, _ in wanted}
    if rule.power == 1:
        whole = math.fsum(effective.values())
        effective = {stage: share * part / whole for stage, part in effective.items()}
    # Held-out units meet this part alone, so that it may cost what all others together do; beside a choice, half of it.
    together = rule.together(effective.values())
    if len(fitted) > 1:
        queries[choice_of(name)], effective[choice_of(name)] = choice_query(task), CHOICE * together
    queries[evaluation_of(name)] = evaluation_query(task)
    effective[evaluation_of(name)] = together if len(fitted) == 1 else BESIDE_CHOICE * together
    made = {
        stage: Part(query=query, share=rule.of_statistics(effective[stage], _statistics(query)))
        for stage, query in queries.items()
    }
    return made


def cell_count(task: TrainModel) -> int:
    """Into how many cells held-out examples are counted: by label and score (training.evaluation says which is which)."""
    most, classes = 2 * task.evaluation_cells, task.label.outputs
    if isinstance(task.label, NumberLabel):
        return math.isqrt(most) ** 2
    return classes**2 if 2 < classes**2 <= most else most


def counted_cells(task: TrainModel) -> int:
    """How many counts are released: those of each group of examples one after the other."""
    return task.evaluated_groups * cell_count(task)


def evaluation_query(task: TrainModel) -> Query:
    """The counts of held-out examples by group and cell: an example is in one of them, however many there are."""
    edges = [float(cell) for cell in range(counted_cells(task) + 1)]
    counts: dict[str, Metric] = {"cells": Histogram(CELL, edges=edges)}
    return _over_all(task, counts, task.counted_examples, HELD_OUT)


def choice_query(task: TrainModel) -> Query:
    """The choice of one candidate by the sum over held-out units of how well each is predicted, from 0 to 1.

    Its table has the unit's columns, the number of the candidate and that score: a row for each unit and candidate.
    """
    count = len(fit_candidates.settings(task.steps))
    return Query(
        privacy_unit=task.unit_columns,
        partition_by=CANDIDATE,
        bounds=ContributionBounds(max_partitions_contributed=count),
        partitions=PublicPartitions(keys=[(number,) for number in range(1, count + 1)]),
        # Clipped by unit, so that nobody adds more than 1. At one price beside Gaussian noise, the exponential mechanism decides
        # more sharply than permute-and-flip, whose record does not say that its range is bounded.
        best=Best(by=Sum(SCORE, min_sum_per_partition=0, max_sum_per_partition=1), mechanism="exponential"),
        group=HELD_OUT,
    )


def check_together(tasks: Mapping[str, TrainModel], stages: Sequence[str]) -> None:
    """Units are divided once for a whole plan: all train stages hold out the same part of the same units.

    Args:
        tasks: the train stages.
        stages: the names of all stages.

    Raises:
        RequestError: they do not; or a name would meet the name of a part or of a file.
    """
    names = list(tasks)
    for name in names:
        below = [other for other in stages if other.startswith(f"{name}.")]
        if below:
            message = f"begins like the parts of the train stage {name!r}"
            raise RequestError(field=f"stages.{below[0]}", message=message, hint="rename it")
        if name.endswith((".parquet", ".json", ".html")):
            message = "is the name of a folder in the release, and looks like that of a file"
            raise RequestError(field=f"stages.{name}", message=message, hint="rename it")
        if tasks[name].unit_columns != tasks[names[0]].unit_columns:
            message = f"differs from that of {names[0]!r}: a unit would train in one stage and be held out in the other"
            raise RequestError(
                field=f"stages.{name}.privacy_unit", message=message, hint="write the same columns in both"
            )
    for name in names[1:]:
        if tasks[name].held_out != tasks[names[0]].held_out:
            message = f"differs from that of {names[0]!r}: units are divided once for a whole plan"
            raise RequestError(field=f"stages.{name}.held_out", message=message, hint="hold out the same part in both")


def _of_votes(name: str, task: PateModel, share: float) -> dict[str, Part]:
    """The parts of a stage whose teachers vote: bins, categories and moments are those of public examples, and cost nothing."""
    steps = task.steps
    tests = ClippedSums(size=1, times=steps.settled_asked)
    answers = ClippedSums(size=task.classes, times=steps.answers)
    return {
        tests_of(name): Part(query=_over_all(task, {"tests": tests}), share=share * TESTS),
        name: Part(query=_over_all(task, {"answers": answers}), share=share * (1 - TESTS)),
        evaluation_of(name): Part(query=evaluation_query(task), share=share),
    }


def ranks(bins: int, most: int) -> list[float]:
    """The ranks that divide values into so many equal parts; as many as fit between them, so that each of these is there too.

    >>> ranks(4, 0), len(ranks(4, 100)), ranks(4, 100)[24]
    ([0.25, 0.5, 0.75], 99, 0.25)
    """
    whole = bins * max(1, most // bins)
    return [rank / whole for rank in range(1, whole)]


def _statistics(query: Query) -> int:
    """How many statistics of a query get noise: a tree has one for each of its levels."""
    basis = Basis(centred=False, nullable=True)
    return len({statistic for metric in query.metrics.values() for statistic in metric.statistics(basis)})


def _sums(task: TrainModel) -> ClippedSums:
    """The sums that the steps of a task release."""
    steps = task.steps
    if isinstance(steps, Rounds):
        chosen = steps.correlation
        return ClippedSums(
            size=task.size,
            times=steps.steps,
            rate=steps.charged_rate,
            parts=steps.parts,
            separation=steps.separation,
            coefficients=() if chosen is None else chosen.coefficients,
        )
    return ClippedSums(size=task.size, times=steps.steps, rate=steps.sampling_rate)


def _over_all(task: TrainModel, metrics: dict[str, Metric], rows: int = 1, group: str = TRAINING) -> Query:
    return one_partition.query(task.unit_columns, metrics, rows=rows, group=group)


def _votes(task: TrainModel, category: Category, rule: Sharing) -> Query:
    votes = min(VOCABULARY, task.max_examples_per_unit) if rule.caps_votes else VOCABULARY
    return Query(
        privacy_unit=task.unit_columns,
        partition_by=category.column,
        bounds=ContributionBounds(max_partitions_contributed=votes, max_contributions_per_partition=1),
        metrics={"users": PrivacyIdCount()},
        partitions=PrivatePartitions(),
        top=Top(k=(category.most or 1) + 1, by="users"),  # one more, since a null may be among them
        group=TRAINING,
    )
