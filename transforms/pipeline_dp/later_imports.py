"""Modules that PipelineDP imports and that a program may not need here: they are loaded when somebody uses them.

In: names of modules. Out: while PipelineDP is imported, something in their place that loads the module at its first use. Holds:
afterwards `sys.modules` is as it was, so that every other import gets the module itself; PipelineDP's own accountant,
mechanisms and transforms work as ever. Not covered: a module that is loaded already, which is left alone.
"""

import contextlib
import importlib
import importlib.util
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any

NAMES = (
    "dp_accounting",
    "dp_accounting.pld",
    "dp_accounting.pld.common",
    "dp_accounting.pld.privacy_loss_distribution",
    "scipy.stats",
    "apache_beam",
    "apache_beam.transforms",
    "apache_beam.transforms.combiners",
)
"""What PipelineDP's accountant and mechanisms compute with, and Beam: ours do without it, and LocalBackend without Beam. They
cost a program two seconds."""

OF_BEAM = ("MakePrivate", "PrivatePCollection", "private_beam")
"""Names of PipelineDP that are classes of Beam, or a module of them: there is no import of them without Beam."""


class _Later(types.ModuleType):
    """Stands for a module until it is used."""

    def __getattr__(self, name: str) -> Any:
        if name == "__path__":  # what the import of a submodule asks for
            return []
        return getattr(importlib.import_module(self.__name__), name)


@contextlib.contextmanager
def later(names: Iterable[str]) -> Iterator[None]:
    """Load these modules at their first use, where the block imports them.

    Args:
        names: of modules, parents before their submodules.
    """
    absent = [name for name in names if name not in sys.modules and importlib.util.find_spec(name.partition(".")[0])]
    for name in absent:
        module = sys.modules[name] = _Later(name)
        parent, _, last = name.rpartition(".")
        if parent in absent:
            setattr(sys.modules[parent], last, module)
    try:
        yield
    finally:
        for name in absent:
            if isinstance(sys.modules.get(name), _Later):
                del sys.modules[name]


@contextlib.contextmanager
def without(name: str) -> Iterator[None]:
    """Let the import of a module fail in the block.

    Args:
        name: of a module that is not loaded.
    """
    modules: dict[str, types.ModuleType | None] = sys.modules  # type: ignore[assignment]
    modules[name] = None
    try:
        yield
    finally:
        del modules[name]


def load_pipeline_dp() -> None:
    """Import PipelineDP without what it computes with, and without Beam."""
    if "apache_beam" in sys.modules:
        with later(NAMES):
            package = importlib.import_module("pipeline_dp")
    else:
        with later(NAMES), without("pipeline_dp.private_beam"):  # which it can do without
            package = importlib.import_module("pipeline_dp")
        names = vars(package)
        names["__getattr__"] = _of_pipeline_dp
        names["__all__"] += [name for name in OF_BEAM if name[0].isupper()]
    accounting = importlib.import_module("pipeline_dp.budget_accounting")
    if isinstance(getattr(accounting, "pldlib", None), _Later):
        # It looks into sys.modules to see whether its accountant can work; it can.
        vars(accounting)["_check_pldlib_imported"] = lambda: True


def _of_pipeline_dp(name: str) -> Any:
    if name not in OF_BEAM:
        raise AttributeError(f"module 'pipeline_dp' has no attribute {name!r}")
    return of_beam("pipeline_dp", name)


def of_beam(package: str, name: str) -> Any:
    """A name of a package that needs Beam, which is loaded.

    Args:
        package: PipelineDP or this one.
        name: one of `OF_BEAM`.
    """
    module = importlib.import_module(f"{package}.private_beam")
    found = module if name == "private_beam" else getattr(module, name)
    setattr(sys.modules[package], name, found)
    return found


def is_pcollection(value: object) -> bool:
    """Whether a value is a PCollection. Beam is not loaded for that: without it there is none.

    >>> is_pcollection([1, 2])
    False
    """
    pvalue = sys.modules.get("apache_beam.pvalue")
    return pvalue is not None and isinstance(value, pvalue.PCollection)
