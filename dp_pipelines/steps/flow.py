"""Elements on their way through steps, as an engine's collection: the graph of a job is written once, over this.

In: steps, elements known beforehand. Out: flows. Holds: nothing is computed here. Not covered: running
(`transforms.beam_flow` makes a flow of a PCollection, `jobs.runners.local` one that threads of this process carry out).
"""

import abc
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, ClassVar

from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.steps.step import Step

Opener = Callable[[str], BinaryIO]
"""From the name of a file to a stream of its bytes."""

Wiring = Callable[..., "Flow"]
"""From one flow or several to one."""


class Flow(abc.ABC):
    """A collection of elements."""

    own_threads: ClassVar[bool] = False
    """Whether the engine calls steps in as many threads as there are cores."""

    @property
    @abc.abstractmethod
    def opener(self) -> Opener:
        """How steps open files where this engine runs them."""

    @abc.abstractmethod
    def each(self, label: str, step: Step) -> "Flow":
        """What a step makes of each element."""

    @abc.abstractmethod
    def by_key(self, label: str) -> "Flow":
        """Each key once, with all of its values: a shuffle. Elements are pairs (key, value)."""

    @abc.abstractmethod
    def spread(self, label: str) -> "Flow":
        """The same elements, each of which is worth a task of its own."""

    @abc.abstractmethod
    def with_others(self, label: str, *others: "Flow") -> "Flow":
        """These elements and those of other flows."""

    @abc.abstractmethod
    def known(self, label: str, elements: Sequence[Any], gives: Any) -> "Flow":
        """Elements that are known before the run, beside this flow, which they do not depend on."""

    @abc.abstractmethod
    def inside(self, label: str, wiring: Wiring, *others: "Flow", shown: StagePlan | None = None) -> "Flow":
        """What `wiring` makes of this flow and the others, under one name.

        Args:
            label: the name.
            wiring: called with the flows.
            others: more flows for it.
            shown: the stage whose public facts an engine's pages show.
        """
