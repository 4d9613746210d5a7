"""The examples in docstrings, each module in turn, under the name by which users import it.

In: every module of the distribution. Out: one test for each module that holds an example. Holds: examples run as they
are printed. (Pytest's own collection would load transforms/ and jobs/ as second modules under bare names.)
"""

import doctest
import importlib
import importlib.util
import types

import pytest

from tests.helpers.extension_folders import needs
from tests.helpers.source import modules

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
OF_EXTENSIONS = "dp_pipelines.extensions"
"""Its examples look at two of them."""
WITH_EXAMPLES = [name for name, path in modules().items() if ">>> " in path.read_text()]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[needs("describe", "sample_and_aggregate")] if name == OF_EXTENSIONS else [])
        for name in WITH_EXAMPLES
    ],
)
def test_the_examples_of(name: str, tmp_path, monkeypatch) -> None:
    if name.startswith("dp_pipelines.transforms.pipeline_dp") and importlib.util.find_spec("pipeline_dp") is None:
        pytest.skip("needs the extra pipeline-dp: Python 3.11 to 3.13")
    monkeypatch.chdir(tmp_path)
    result = doctest.testmod(importlib.import_module(name), optionflags=OPTIONS)
    assert result.attempted > 0, "an example stands where doctest does not look: in a comment or a plain string"
    assert result.failed == 0, "see the captured output"


def test_a_wrong_example_is_found() -> None:
    module = types.ModuleType("wrong", "A module.\n\n>>> 1 + 1\n3\n")
    assert doctest.testmod(module, optionflags=OPTIONS).failed == 1
