"""Modules that PipelineDP imports and that no program needs here: they are loaded when somebody uses them.

In: names of modules. Out: while PipelineDP is imported, something in their place that loads the module at its first use. Holds:
afterwards `sys.modules` is as it was, so that every other import gets the module itself; PipelineDP's own accountant and
mechanisms work as ever. Not covered: a module that is loaded already, which is left alone.
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
)
"""What PipelineDP's accountant and mechanisms compute with. Ours do without, and they cost a program about a second."""


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


def load_pipeline_dp() -> None:
    """Import PipelineDP without what it computes with."""
    with later(NAMES):
        accounting = importlib.import_module("pipeline_dp.budget_accounting")
    if isinstance(getattr(accounting, "pldlib", None), _Later):
        # It looks into sys.modules to see whether its accountant can work; it can.
        vars(accounting)["_check_pldlib_imported"] = lambda: True
