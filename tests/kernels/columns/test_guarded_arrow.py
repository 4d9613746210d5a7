"""Every operation of Arrow that gathers values of variable width in the rows' path goes through `kernels.columns.gather`.

Arrow lets 32-bit offsets wrap beyond 2 GiB, sometimes without an error: long texts of one unit then change values of others.
"""

import ast
import pathlib
from collections.abc import Iterator

import pytest

from tests.helpers.extension_folders import needs

ROOT = pathlib.Path(__file__).parents[3]

GATHERING = {
    "take",
    "filter",
    "dictionary_decode",
    "combine_chunks",
    "unify_dictionaries",
    "concat_arrays",
    "replace_with_mask",
    "if_else",
    "sort_by",
    "coalesce",
}
"""Operations that make an array of values from several places."""

PATH = [
    *(ROOT / "dp_pipelines/kernels").rglob("*.py"),
    *(ROOT / "transforms").rglob("*.py"),
    *(ROOT / "dp_pipelines/steps").rglob("*.py"),
    *(ROOT / "dp_pipelines/extensions/sample_and_aggregate").rglob("*.py"),
    *(ROOT / "dp_pipelines/plan_stages").rglob("*.py"),
    *(ROOT / "dp_pipelines/release").rglob("*.py"),
    *(ROOT / "dp_pipelines/training/examples").rglob("*.py"),
    *(ROOT / "dp_pipelines/training" / name for name in ("fit.py", "stage_on_disk.py")),
]

ALLOWED = {
    "column_casts.py": {
        "if_else": "of floats, which have no offsets",
        "replace_with_mask": "of decimals, which have no offsets",
    },
    "column_types.py": {"take": "of the values of one batch's lists, each at most once"},
    "csv_cells.py": {"if_else": "of one block's cells, some of which become null"},
    "csv_times.py": {"if_else": "of one block's cells, each of at most some tens of bytes"},
    "csv_values.py": {"if_else": "of one block's cells, some of which become null"},
    "keys.py": {
        "if_else": "of floats, which have no offsets",
        "take": "of indices into a dictionary, which have no offsets",
    },
    "listed_keys.py": {"concat_arrays": "of a column and one null, which adds no byte to its values"},
    "store.py": {"take": "of numpy's arrays"},
    "coded.py": {"take": "of arrays in files"},
    "blocks.py": {
        "combine_chunks": "of one block's rows, which its function must hold as one table",
        "sort_by": "of one block's rows",
    },
    "whole_units.py": {"if_else": "of one piece, whose texts it can only shorten"},
}
"""By module: operations that are called there as they are, and why."""


def gathering(source: str) -> Iterator[tuple[str, int]]:
    """The operations that a module calls by itself, with their lines."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in GATHERING:
            of = node.func.value
            if not (isinstance(of, ast.Name) and of.id in ("gather", "np")):
                yield node.func.attr, node.lineno


@pytest.mark.parametrize("path", sorted(PATH), ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_of_the_rows_path_gather_through_the_guarded_functions(path):
    if path.name == "gather.py":
        return
    bare = [(name, line) for name, line in gathering(path.read_text()) if name not in ALLOWED.get(path.name, {})]
    assert bare == []


@needs("sample_and_aggregate")
def test_no_exception_is_left_over():
    used = {(path.name, name) for path in PATH for name, _ in gathering(path.read_text())}
    assert {(module, name) for module, names in ALLOWED.items() for name in names} <= used


def test_a_bare_operation_is_found():
    assert list(gathering("def f(a, b):\n    return a.take(b)\n")) == [("take", 2)]
    assert list(gathering("def f(a, b):\n    return pa.concat_arrays([a, b])\n")) == [("concat_arrays", 2)]
    assert list(gathering("def f(a, b):\n    return gather.take(a, b)\n")) == []
