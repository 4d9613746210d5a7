"""Runs a block of a page as its reader would, with the installed program, in the page's folder.

In: a block, a folder, names that the page's Python takes from its reader. Out: the exit code that is right, the one it had, what
the block wrote to stderr. Holds: nothing but the standard library and dp_pipelines is needed, so that tests/packages can run
pages in environments without pytest.
"""

import json
import os
import pathlib
import subprocess
import sys
import textwrap
from collections.abc import Callable

from dp_pipelines.jobs.spec import yaml_lines
from tests.docs.blocks import Block

Run = Callable[[list[str], pathlib.Path], subprocess.CompletedProcess[str]]
"""Runs a command in a folder."""


def run(command: list[str], folder: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """A command in the page's folder, with the installed program on its path."""
    path = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=900
    )


def merged(whole: object, part: object) -> object:
    """A tree with another one put into it."""
    if isinstance(whole, dict) and isinstance(part, dict):
        return {key: merged(whole.get(key), part.get(key, whole.get(key))) for key in {**whole, **part}}
    return part


def with_part(file: pathlib.Path, place: str, part: object) -> None:
    """Put a part into a job file, at a place such as `stages.weekly`."""
    for name in reversed(place.split(".") if place else []):
        part = {name: part}
    file.write_text(json.dumps(merged(yaml_lines.parse(file.read_text(), file.name).data, part), indent=1))


def parameters(file: pathlib.Path) -> list[str]:
    """A value for each parameter of a job file."""
    values = {"date": "2026-01-05", "string": "data", "int": "1", "float": "1.0"}
    declared = yaml_lines.parse(file.read_text(), file.name).data.get("params", {})
    return [word for name, of in declared.items() for word in ("--param", f"{name}={values[of['type']]}")]


def ended(block: Block, folder: pathlib.Path, before: str, run: Run = run) -> tuple[int, int, str]:
    """Run a block: the exit code that is right, the one it had, and what it said.

    Args:
        block: of a page.
        folder: of the page.
        before: what its Python begins with.
        run: runs `bash -c`, `python -c` and the installed program.
    """
    if block.language == "sh":
        done = run(["bash", "-euo", "pipefail", "-c", block.text], folder)
        return int(block.value) if block.rule == "exits with" else 0, done.returncode, done.stderr
    if block.language == "python":
        done = run([sys.executable, "-c", before + block.text], folder)
        return 0, done.returncode, done.stderr
    name, _, place = block.value.partition(" at ")
    file = folder / name
    if block.rule == "part of":
        with_part(file, place, yaml_lines.parse(textwrap.dedent(block.text), name).data)
    else:
        file.write_text(block.text)
    if "stages" not in yaml_lines.parse(file.read_text(), file.name).data:
        return 0, 0, ""
    if not list(folder.glob("*/*.parquet")):
        return 0, 0, "a job before its data"
    done = run(["dp-pipelines", "plan", name, *parameters(file)], folder)
    return 0, done.returncode, done.stderr
