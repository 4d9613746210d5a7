"""What `dp_pipelines.transforms` gives: every name, where it is defined; loaded when it is used, with the coder of tables."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import dp_pipelines.transforms
from tests.helpers.source import modules

NAMES = dp_pipelines.transforms._ROOMS


def said(program: str) -> list[str]:
    """The words that a program prints, in a process of its own."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def listed() -> set[tuple[str | None, str]]:
    """The names and their places, as type checkers find them."""
    found = ast.walk(ast.parse(Path(dp_pipelines.transforms.__file__).read_text()))
    lines = [
        line for line in found if isinstance(line, ast.ImportFrom) and (line.module or "").startswith("dp_pipelines")
    ]
    return {(alias.asname, f"{line.module}.{alias.name}") for line in lines for alias in line.names}


def test_every_public_name_is_there_and_stands_where_type_checkers_find_it() -> None:
    assert listed() == {(name, f"dp_pipelines.{room}.{name}") for name, room in NAMES.items()}
    assert all(getattr(dp_pipelines.transforms, name).__name__ == name for name in NAMES)
    assert set(NAMES) <= set(dir(dp_pipelines.transforms))
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = dp_pipelines.transforms.Nothing


def test_importing_the_transforms_loads_no_beam() -> None:
    assert said("import sys, dp_pipelines.transforms; print('apache_beam' in sys.modules)") == ["False"]


@pytest.mark.parametrize("module", ["read", "private_aggregate", "rows.from_rows", "rows.input_tables", "model"])
def test_a_module_that_reads_tables_registers_their_coder(module: str) -> None:
    program = f"import pyarrow as pa, dp_pipelines.transforms.{module}\nfrom apache_beam import coders\n"
    assert said(program + "print(type(coders.registry.get_coder(pa.Table)).__name__)") == ["ArrowTableCoder"]


def loading(module: str, known: dict[str, Path]) -> set[str]:
    """The modules of ours that a module loads with it."""
    found, waiting = {module}, [module]
    while waiting:
        for line in ast.parse(known[waiting.pop()].read_text()).body:
            if isinstance(line, ast.ImportFrom) and line.module:
                names = {line.module, *(f"{line.module}.{alias.name}" for alias in line.names)}
                new = (names & set(known)) - found
                found |= new
                waiting += new
    return found


def test_no_module_gives_a_collection_of_tables_without_their_coder() -> None:
    prefixes = ("dp_pipelines.transforms.", "dp_pipelines.extensions.")
    known = {name: path for name, path in modules().items() if name.startswith(prefixes)}
    giving = {name for name, path in known.items() if "with_output_types(pa.Table)" in path.read_text()}
    assert {"dp_pipelines.transforms.rows.row_batches", "dp_pipelines.transforms.pipeline_dp.release_rows"} <= giving
    assert [name for name in giving if "dp_pipelines.transforms.coder" not in loading(name, known)] == []
