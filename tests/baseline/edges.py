"""The imports from the core into what will be extensions: a list that may only shrink until extensions are found by name.

In: the syntax trees of our modules. Out: one line for each pair of a core module and a module of an extension that it imports.
Holds: imports inside functions, those for types only and names of modules in strings count too. Not covered: imports between
extensions.
Run: python tests/baseline/edges.py, to write the list anew after an edge was removed.
"""

import ast
import pathlib
import sys
from collections import Counter
from collections.abc import Iterator, Mapping

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from tests.helpers.source import imports, modules

EXTENSIONS = {
    "federated": "training.federated query.federate_model",
    "pate": "training.teachers query.models.pate_model planning.votes_usefulness report.models.votes_in_words",
    "local_dp": ("collect collected steps.collected transforms.collected_estimates"),
    "pipeline_dp": "transforms.pipeline_dp",
    "beam_yaml": "jobs.beam_yaml",
}
"""The modules and packages of each extension, under dp_pipelines. One that moves to `extensions/` has only its folder here."""

FACADE = {"dp_pipelines", "dp_pipelines.transforms", "dp_pipelines.extensions"}
"""The `__init__` files that give users all public names, and the table of extensions: they may name extensions."""

LIST = pathlib.Path(__file__).with_name("edges.txt")


def extension_of(module: str, table: Mapping[str, str] = EXTENSIONS) -> str | None:
    """Return the extension that a module or one of its names belongs to; None for the core.

    >>> extension_of("dp_pipelines.collect.coins"), extension_of("dp_pipelines.collected"), extension_of("dp_pipelines.errors")
    ('local_dp', 'local_dp', None)
    >>> extension_of("dp_pipelines.extensions.pate.stage")
    'pate'
    """
    parts = module.split(".")
    if parts[:2] == ["dp_pipelines", "extensions"] and len(parts) > 2:
        return parts[2]
    roots = {f"dp_pipelines.{root}": name for name, listed in table.items() for root in listed.split()}
    found = (".".join(parts[:length]) for length in range(len(parts), 1, -1))
    return next((roots[root] for root in found if root in roots), None)


def short_names(known: Mapping[str, pathlib.Path]) -> dict[str, str]:
    """Return for each module a name without the folders it may move out of: its last part, or two where modules share one."""
    last = Counter(name.rpartition(".")[2] for name in known)
    return {
        name: name.rpartition(".")[2] if last[name.rpartition(".")[2]] == 1 else ".".join(name.split(".")[-2:])
        for name in known
    }


def imported(module: str, source: str, is_package: bool, known: Mapping[str, object]) -> Iterator[str]:
    """Yield the modules of ours that a module imports or names in a string such as `"dp_pipelines.query.query:Query"`."""
    names = [name for name, _ in imports(source, module, is_package)]
    strings = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
    names += [text.partition(":")[0] for text in strings if isinstance(text, str) and " " not in text]
    for name in names:
        while name and name not in known:
            name = name.rpartition(".")[0]
        if name:
            yield name


def edges(known: Mapping[str, pathlib.Path] | None = None) -> list[str]:
    """Return the edges from the core to extensions, then those of the facade, each group sorted."""
    known = modules() if known is None else known
    short = short_names(known)
    found = set()
    for module, path in known.items():
        if extension_of(module) is not None:
            continue
        importer = f"facade {short[module]}" if module in FACADE else short[module]
        for name in imported(module, path.read_text(), path.name == "__init__.py", known):
            if (extension := extension_of(name)) is not None:
                found.add(f"{importer} -> {extension}: {short[name]}")
    return sorted(found, key=lambda line: (line.startswith("facade "), line))


if __name__ == "__main__":
    LIST.write_text("\n".join(edges()) + "\n")
