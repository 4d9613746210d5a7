"""Submodules and names: what a program may import from PipelineDP it may import from the drop-in, or is told why not."""

import importlib
import pkgutil
import subprocess
import sys
import types
from typing import Any

import pytest

from dp_pipelines.errors import RequestError
from dp_pipelines.transforms.pipeline_dp.submodules import PASSED_ON, REFUSED, REFUSED_NAMES
from tests.helpers.drop_in import ours, theirs

OURS = ours.__name__
OF_BOTH = ("budget_accounting", "dp_engine", "private_beam", "report_generator")
NOWHERE = {"AdvancedQueryBuilder"}
"""What the original lists in `__all__` and does not have."""


def submodules_of_the_original() -> list[str]:
    return [
        found.name.removeprefix("pipeline_dp.")
        for found in pkgutil.walk_packages(theirs.__path__, "pipeline_dp.", onerror=lambda name: None)
    ]


def test_every_submodule_of_the_original_is_there_passed_on_or_refused() -> None:
    found = {name for name in submodules_of_the_original() if name != "dataset_histograms"}
    assert found <= {*PASSED_ON, *REFUSED, *OF_BOTH}
    for name in found:
        module = importlib.import_module(f"{OURS}.{name}")
        assert isinstance(module, types.ModuleType)
        assert importlib.import_module(f"{OURS}.{name}") is module


def test_every_name_of_the_original_is_there() -> None:
    missing = {name for name in theirs.__all__ if not hasattr(ours, name)}
    assert missing <= NOWHERE
    assert ours.PrivateContributionBounds(max_partitions_contributed=3).max_partitions_contributed == 3


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("aggregate_params", "SumParams"),
        ("beam_backend", "BeamBackend"),
        ("data_extractors", "DataExtractors"),
        ("pipeline_backend", "LocalBackend"),
        ("budget_accounting", "NaiveBudgetAccountant"),
        ("dp_engine", "DPEngine"),
        ("private_beam", "MakePrivate"),
        ("report_generator", "ExplainComputationReport"),
    ],
)
def test_a_name_is_one_thing_from_its_submodule_and_from_the_top(module: str, name: str) -> None:
    namespace: dict[str, Any] = {}
    exec(f"from {OURS}.{module} import {name} as it", namespace)
    assert namespace["it"] is getattr(ours, name)


@pytest.mark.parametrize("module", REFUSED)
def test_a_module_without_a_counterpart_is_imported_and_its_names_are_refused(module: str) -> None:
    found = importlib.import_module(f"{OURS}.{module}")
    with pytest.raises(RequestError) as refused:
        found.Anything  # noqa: B018 - asking is what is refused
    assert refused.value.field == f"pipeline_dp.{module}.Anything"
    assert refused.value.hint
    with pytest.raises(ImportError, match=r"Anything: .+; .+"):
        exec(f"from {OURS}.{module} import Anything")


def test_a_base_class_of_a_refused_module_is_refused_where_it_is_named() -> None:
    with pytest.raises(RequestError, match="draws noise that no plan accounts for"):
        type("Mine", (ours.combiners.CustomCombiner,), {})


@pytest.mark.parametrize(("module", "name"), REFUSED_NAMES)
def test_a_name_without_a_counterpart_in_a_module_of_ours_is_refused(module: str, name: str) -> None:
    found = importlib.import_module(f"{OURS}.{module}")
    with pytest.raises(RequestError, match=f"pipeline_dp.{module}.{name}: .+; .+"):
        getattr(found, name)
    with pytest.raises(ImportError, match=f"{name}: .+; .+"):
        exec(f"from {OURS}.{module} import {name}")
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = found.Nothing


def test_a_misspelt_submodule_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"{OURS}.aggregate_parms")


@pytest.mark.slow
def test_refused_modules_load_nothing() -> None:
    text = f"import sys; from {OURS} import dataframes, private_spark; print(sorted(m for m in sys.modules if m in "
    text += "('pyspark', 'pipeline_dp.dataframes', 'pipeline_dp.private_spark')))"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
