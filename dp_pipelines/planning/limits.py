"""The limits of a stage in words, for people who read its numbers: what of one privacy unit is counted, and how values count.

In: a query or a model. Out: sentences. Holds: public parameters only; bounds that a run chooses are said once they are
chosen. Not covered: how much the limits cut off, which is a fact about the rows (`release.kept_shares`).
"""

from collections.abc import Sequence

from dp_pipelines.auto_bounds import value_bounds
from dp_pipelines.metrics.base import RAW, Metric
from dp_pipelines.plan_stages.kept_counts import ends_of
from dp_pipelines.query.evaluation_groups import OTHERS, EvaluationGroups
from dp_pipelines.query.large_list import LargeList
from dp_pipelines.query.query import PublicPartitions, Query
from dp_pipelines.query.rollup import REST
from dp_pipelines.query.row_unit import is_row_unit
from dp_pipelines.query.train_model import TrainModel


def in_words(asked: Query | TrainModel) -> list[str]:
    """Return the limits of what a stage asks for.

    >>> from dp_pipelines import ContributionBounds, Sum
    >>> query = Query(privacy_unit="customer", partition_by=["airport", "week"],
    ...               bounds=ContributionBounds(max_partitions_contributed=8, max_contributions_per_partition=50),
    ...               metrics={"paid": Sum("amount", min_value=0, max_value=1000)})
    >>> for sentence in in_words(query):
    ...     print(sentence)
    at most 50 rows of one customer are counted in each group by airport and week
    at most 8 groups by airport and week are counted of one customer
    amount below 0 counts as 0, above 1,000 as 1,000
    """
    unit = _listed(asked.unit_columns)
    if isinstance(asked, TrainModel):
        return [f"at most {asked.max_examples_per_unit:,} examples of one {unit} are learned from", *_of_classes(asked)]
    return [*_of_bounds(asked, unit), *_of_values(asked, unit), *_of_levels(asked)]


def weighting(task: TrainModel) -> str:
    """Return in words which examples count in the evaluation of a model."""
    unit = _listed(task.unit_columns)
    if task.counts_units:
        return f"each {unit} counts once, with one of its examples, chosen by a hash"
    return (
        f"at most {_counted(task.counted_examples, 'example')} of each {unit} count: one with more of them counts more"
    )


def groups(by: EvaluationGroups) -> str:
    """Return in words the groups by which a model is evaluated."""
    return f"{by.column}: {', '.join(str(value) for value in by.groups)}; {OTHERS}"


def _of_classes(task: TrainModel) -> list[str]:
    """Return the note on probabilities for readers of a model with class weights."""
    weights = task.steps.relative_weights
    if weights is None:
        return []
    text = ", ".join(f"{weight:.3g}" for weight in weights)
    return [f"an example counts by its class ({text}), and probabilities are those of examples that are weighted so"]


def _of_levels(query: Query) -> list[str]:
    """Return the notes on numbers for readers of a rollup."""
    if query.rollup is None:
        return []
    added = [name for name, metric in query.metrics.items() if metric.rolls_up == "sum"]
    moved = [name for name in added if query.metrics[name].never_negative]
    sentences = []
    if added:
        rest = ", with the row of the rest" if REST in query.published_keys else ""
        sentences.append(
            f"{_listed(added)}: a group is exactly the sum of its parts{rest}; add up no raw numbers instead"
        )
    if moved:
        sentences.append(
            f"{_listed(moved)}: numbers below 0 were moved to 0, which pulls small numbers up and large ones down; error bars "
            f"are those before that, and {_listed([f'{name}{RAW}' for name in moved])} the numbers as noise left them"
        )
    return sentences


def _of_bounds(query: Query, unit: str) -> list[str]:
    if is_row_unit(query.unit_columns):  # a row is one row of one group: nothing is cut off
        return []
    bounds, groups = query.bounds, _groups(query)
    if bounds.max_contributions is not None:
        return [
            f"at most {_counted(bounds.max_contributions, 'row')} of one {unit} {_are(bounds.max_contributions)} counted in all"
        ]
    sentences = []
    within = f" in each group{groups}" if groups else ""
    if bounds.row_candidates is not None:
        listed = ", ".join(f"{candidate:,}" for candidate in bounds.row_candidates)
        sentences.append(f"at most as many rows of one {unit} as the run chooses are counted{within}: one of {listed}")
    elif bounds.max_contributions_per_partition is not None:
        most = bounds.max_rows_per_partition
        sentences.append(f"at most {_counted(most, 'row')} of one {unit} {_are(most)} counted{within}")
    if bounds.auto_partitions:
        listed = ", ".join(f"{candidate:,}" for candidate in bounds.candidates)
        sentences.append(
            f"at most as many groups{groups} as the run chooses are counted of one {unit}: one of {listed}"
        )
    elif not all_listed(query):
        most = bounds.max_partitions
        sentences.append(f"at most {_counted(most, 'group')}{groups} {_are(most)} counted of one {unit}")
    return sentences


def _of_values(query: Query, unit: str) -> list[str]:
    sentences: dict[str, None] = {}
    for metric in query.asked_metrics:
        if metric.scale is not None:
            sentences[f"{metric.scale.column} is clamped to {metric.scale.words}, by partition"] = None
        elif (ends := ends_of(metric)) is not None:
            sentences[_clamp(metric, *ends)] = None
        elif metric.clips_partition_sums and metric.column is not None and hasattr(metric, "max_sum_per_partition"):
            low, high = (getattr(metric, f"{end}_sum_per_partition") for end in ("min", "max"))
            where = f" in one group{_groups(query)}" if _groups(query) else ""
            sentences[
                f"the sum of {metric.column} of one {unit}{where} counts as {_number(low)} at least and {_number(high)} at most"
            ] = None
    return list(sentences)


def _clamp(metric: Metric, column: str, low: float, high: float) -> str:
    if metric.auto:
        return f"{column} is clamped to a range that the run chooses, within {_number(low)} and {_number(high)}"
    return f"{column} below {_number(low)} counts as {_number(low)}, above {_number(high)} as {_number(high)}"


def _groups(query: Query) -> str:
    """Return the columns of the groups in words, if there is more than one group."""
    columns = [column for column in query.partition_by if column != value_bounds.COLUMN]
    return f" by {_listed(columns)}" if columns else ""


def all_listed(query: Query) -> bool:
    """Return True if a unit may be in every public partition.

    Args:
        query: of a stage.
    """
    if isinstance(query.partitions, LargeList):  # a few unlisted ones take places too
        return False
    return isinstance(query.partitions, PublicPartitions) and query.partitions.count <= query.bounds.max_partitions


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) and abs(value) < 1e15 else f"{value:,.6g}"
