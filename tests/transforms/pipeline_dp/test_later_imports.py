"""Importing the drop-in loads nothing that it does not use, and takes nothing away from PipelineDP or from other programs."""

import subprocess
import sys

import pytest

from dp_pipelines.transforms.pipeline_dp.later_imports import later
from tests.helpers.drop_in import ours

HEAVY = ("dp_accounting", "scipy.stats", "scipy.signal")


def said(program: str) -> str:
    """What a program prints, in a process of its own."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_the_drop_in_loads_no_library_of_distributions() -> None:
    assert said(f"import sys, {ours.__name__}; print([name for name in {HEAVY} if name in sys.modules])") == "[]"


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


def test_a_module_that_stands_for_another_loads_it_at_its_first_use() -> None:
    sys.modules.pop("calendar", None)
    with later(["calendar"]):
        import calendar

        assert type(calendar).__name__ == "_Later"
    assert "calendar" not in sys.modules
    assert calendar.isleap(2000)
    assert sys.modules["calendar"].isleap is calendar.isleap
