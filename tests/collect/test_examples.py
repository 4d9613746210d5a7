"""Every public class that people meet has an example that runs.

In: the source of devices, of estimates and of accounts of answers. Out: classes whose docstring has no example. Holds: they
run (tests/test_doctests.py); here it is seen that there is one. Not covered: whether an example is a good one.
"""

import ast

from tests.helpers.source import modules

ROOMS = ("dp_pipelines.collect.", "dp_pipelines.collected.")
OF_ACCOUNTS = "dp_pipelines.extensions.local_dp.answers"


def without_example(source: str) -> list[str]:
    """Public classes of a module in whose docstring, and whose members' docstrings, nothing is tried."""
    found = [
        node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    return [node.name for node in found if ">>>" not in "".join(_docstrings(node))]


def _docstrings(node: ast.ClassDef) -> list[str]:
    inside = [node, *(member for member in node.body if isinstance(member, ast.FunctionDef))]
    return [ast.get_docstring(one) or "" for one in inside]


def test_every_public_class_of_collected_answers_has_an_example() -> None:
    sources = {
        name: path.read_text() for name, path in modules().items() if name.startswith(ROOMS) or name == OF_ACCOUNTS
    }
    sources["transforms"] = modules()["dp_pipelines.transforms.collected_estimates"].read_text()
    assert len(sources) > 15
    assert {name: found for name, source in sources.items() if (found := without_example(source))} == {}


def test_a_class_without_an_example_is_found() -> None:
    assert without_example('class A:\n    """Words."""\nclass _B: ...\nclass C:\n    """>>> 1"""') == ["A"]
