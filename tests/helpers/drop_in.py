"""PipelineDP and its drop-in side by side: one program, two imports.

Tests only. What imports this is skipped, with the reason, where the extra `pipeline-dp` is missing.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

theirs: Any = pytest.importorskip("pipeline_dp", reason="needs the extra pipeline-dp: Python 3.11 to 3.13")

from dp_pipelines.transforms import pipeline_dp as ours  # noqa: E402
from dp_pipelines.transforms.pipeline_dp import metrics as metrics  # noqa: E402
from dp_pipelines.transforms.pipeline_dp import private_beam as private_beam  # noqa: E402

BOTH = {"original": theirs, "drop-in": ours}
M = theirs.Metrics


class Row(NamedTuple):
    """One row of the invented data."""

    who: Any
    where: Any
    what: Any


def extractors(**more: Any) -> Any:
    """The extractors of such rows."""
    given = {
        "privacy_id_extractor": lambda row: row.who,
        "partition_extractor": lambda row: row.where,
        "value_extractor": lambda row: row.what,
    }
    return theirs.DataExtractors(**{**given, **more})


def local(library: Any, rows: Sequence[Any], params: Any, *, epsilon=1.0, delta=1e-6, public=None, of=None, pld=False):
    """One aggregation, or selection, with LocalBackend: the results as a list."""
    accountant = (library.PLDBudgetAccountant if pld else library.NaiveBudgetAccountant)(epsilon, delta)
    engine = library.DPEngine(accountant, library.LocalBackend())
    if isinstance(params, theirs.SelectPartitionsParams):
        result = engine.select_partitions(rows, params, of or extractors())
    else:
        result = engine.aggregate(rows, params, of or extractors(), public_partitions=public)
    accountant.compute_budgets()
    return list(result)
