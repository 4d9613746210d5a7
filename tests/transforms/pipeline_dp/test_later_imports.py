"""Importing the drop-in loads nothing that it does not use, and takes nothing away from PipelineDP or from other programs."""

import importlib
import subprocess
import sys

import apache_beam as beam
import pytest

pytest.importorskip("pipeline_dp", reason="needs the extra pipeline-dp: Python 3.11 to 3.13")

from dp_pipelines.transforms.pipeline_dp.later_imports import is_pcollection, later, without
from tests.helpers.drop_in import ours, theirs

HEAVY = ("dp_accounting", "scipy.stats", "scipy.signal", "apache_beam")

RELEASE = f"""
import sys
from {ours.__name__} import (AggregateParams, DataExtractors, DPEngine, LocalBackend, Metrics, NaiveBudgetAccountant,
                                SelectPartitionsParams)
accountant = NaiveBudgetAccountant(total_epsilon=1, total_delta=1e-6)
params = AggregateParams(metrics=[Metrics.COUNT, Metrics.SUM, Metrics.PERCENTILE(50)], min_value=0, max_value=5,
                         max_partitions_contributed=1, max_contributions_per_partition=1)
of_row = DataExtractors(privacy_id_extractor=lambda row: row[0], partition_extractor=lambda row: row[1],
                        value_extractor=lambda row: row[2])
found = DPEngine(accountant, LocalBackend()).aggregate([(n, "north", 3) for n in range(2000)], params, of_row)
selected = DPEngine(accountant, LocalBackend()).select_partitions(
    [(n, "north") for n in range(2000)], SelectPartitionsParams(max_partitions_contributed=1), of_row)
accountant.compute_budgets()
"""


def said(program: str) -> str:
    """What a program prints, in a process of its own."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_the_drop_in_loads_no_library_of_distributions() -> None:
    assert said(f"import sys, {ours.__name__}; print([name for name in {HEAVY} if name in sys.modules])") == "[]"


def test_a_whole_program_with_the_local_backend_loads_no_beam() -> None:
    rest = "print([key for key, _ in found], list(selected), [name for name in sys.modules if name.startswith('apache_beam')])"
    assert said(RELEASE + rest) == "['north'] ['north'] []"


@pytest.mark.parametrize("library", ["pipeline_dp", ours.__name__])
def test_what_needs_beam_loads_it_where_it_is_named(library: str) -> None:
    program = f"""
import sys, importlib, {ours.__name__}
library = importlib.import_module("{library}")
before = "apache_beam" in sys.modules
print(before, library.PrivatePCollection.__module__, library.MakePrivate is library.private_beam.MakePrivate)
import apache_beam
print(type(apache_beam).__name__, sys.modules["{library}.private_beam"] is library.private_beam)
"""
    first, second = said(program).split("\n")
    assert first in (f"False {library}.private_beam True", f"False {library}.private_collection True")
    assert second == "module True"


def test_the_original_misses_no_name_after_the_drop_in_and_knows_no_others() -> None:
    program = f"""
import {ours.__name__}, pipeline_dp
print(all(hasattr(pipeline_dp, name) for name in {[name for name in theirs.__all__ if hasattr(theirs, name)]}))
print(hasattr(pipeline_dp, "Nothing"), hasattr({ours.__name__}, "Nothing"))
from pipeline_dp.private_beam import MakePrivate
import apache_beam
backend = pipeline_dp.BeamBackend()
with apache_beam.Pipeline() as pipeline:
    rows = pipeline | apache_beam.Create([1, 2])
    backend.map(rows, lambda row: row + 1, "add") | apache_beam.Map(print)
"""
    assert sorted(said(program).split("\n")) == ["2", "3", "False False", "True"]


def test_where_beam_is_loaded_already_the_original_is_loaded_whole() -> None:
    program = f"import apache_beam, sys, {ours.__name__}; print('pipeline_dp.private_beam' in sys.modules)"
    assert said(program) == "True"


@pytest.mark.slow
def test_pipelinedp_computes_as_ever_after_it_and_others_get_the_modules_themselves() -> None:
    program = f"""
import {ours.__name__}, pipeline_dp
from pipeline_dp import dp_computations
accountant = pipeline_dp.PLDBudgetAccountant(1, 1e-6)
asked = accountant.request_budget(pipeline_dp.aggregate_params.MechanismType.GAUSSIAN)
accountant.compute_budgets()
print(round(asked.noise_standard_deviation), round(dp_computations.gaussian_delta(1.0, 1.0), 3))
import dp_accounting, scipy.stats, sys
print(type(scipy.stats).__name__, scipy.stats is sys.modules["scipy.stats"], dp_accounting.pld.common.__name__)
"""
    assert said(program).split("\n") == ["4 0.127", "module True dp_accounting.pld.common"]


def test_the_import_of_a_module_that_is_taken_away_fails_in_the_block_only() -> None:
    sys.modules.pop("calendar", None)
    with without("calendar"), pytest.raises(ImportError):
        importlib.import_module("calendar")
    assert importlib.import_module("calendar").isleap(2000)


def test_a_collection_of_beam_is_known_and_nothing_else() -> None:
    with beam.Pipeline() as pipeline:
        rows = pipeline | beam.Create([1])
    assert is_pcollection(rows)
    assert not is_pcollection([rows])


def test_a_module_that_stands_for_another_loads_it_at_its_first_use() -> None:
    sys.modules.pop("calendar", None)
    with later(["calendar"]):
        import calendar

        assert type(calendar).__name__ == "_Later"
    assert "calendar" not in sys.modules
    assert calendar.isleap(2000)
    assert sys.modules["calendar"].isleap is calendar.isleap
