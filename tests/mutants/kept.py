"""What was found so far, so that a run that was stopped goes on from there.

In: a file, or none. Out: answers by their questions. Holds: a line is written once its answer is known, and nothing else is:
whoever changes the code begins with another file. Not covered: two runs with one file.
"""

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple


class Known(NamedTuple):
    """What tests do on the tree as it is: processor seconds of each, and whom each calls; no calls where nobody asked."""

    durations: dict[str, float]
    calls: dict[str, frozenset[str]]

    def seconds(self, tests: Sequence[str]) -> float:
        """How long some tests take together, all of their parameters."""
        return sum(seconds for name, seconds in self.durations.items() if name.startswith(tuple(tests)))

    def deciding(self, room: str, function: str) -> list[str]:
        """The tests of a folder that call a function, or, of what is no function, all of them; quickest first."""
        of_room = [name for name in self.durations if name.startswith(room + "/")]
        if function:
            of_room = [name for name in of_room if function in self.calls.get(name, ())]
        return sorted(of_room, key=lambda name: self.durations[name])

    def importing(self, files: Sequence[str]) -> list[str]:
        """The tests of some files, quickest first of each file."""
        return [
            name
            for file in files
            for name in sorted(self.durations, key=lambda name: self.durations[name])
            if name.startswith(file + "::")
        ]

    def within(self, tests: Sequence[str], most: float) -> list[str]:
        """The first tests that together take at most so many seconds, and the first one in any case."""
        totals = list(itertools.accumulate(self.durations[name] for name in tests))
        return [name for at, name in enumerate(tests) if at == 0 or totals[at] <= most]


class Kept:
    """Answers, by their questions.

    Args:
        path: lines of JSON; None keeps them for this run alone.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._answers: dict[str, Any] = {}
        if path is not None and path.exists():
            self._answers.update(json.loads(line) for line in path.read_text().splitlines())

    def __contains__(self, question: str) -> bool:
        return question in self._answers

    def __getitem__(self, question: str) -> Any:
        return self._answers[question]

    def __setitem__(self, question: str, answer: Any) -> None:
        self._answers[question] = answer
        if self._path is not None:
            with self._path.open("a") as stream:
                stream.write(json.dumps([question, answer]) + "\n")
