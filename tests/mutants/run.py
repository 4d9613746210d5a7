"""Plant faults, one after the other, into a copy of the tree, and see that tests find each of them.

In: the table of faults, or the seeded sample of random ones. Out: a line for each, and how many were found; exit code 1 where the
table has one that was not, or where too many of the sample were not. Holds: all tests that decide pass on the copy as it is; a
fault at import, planted first, shows that they run on the copy. Two copies at a time.

    python tests/mutants/run.py [--random] [--only TEXT] [--workers 2] [--known FILE]
"""

import argparse
import concurrent.futures
import contextlib
import itertools
import json
import queue
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.helpers.source import PACKAGE_FOLDERS, modules  # noqa: E402
from tests.mutants import equivalent, random_mutants, table  # noqa: E402
from tests.mutants.random_mutants import Mutant  # noqa: E402
from tests.mutants.syntax import Trees  # noqa: E402
from tests.mutants.tree import Answer, Copy  # noqa: E402

SAMPLE = 400
WANTED = 0.95

NONE_OF_THEM = 5
"""How pytest ends where no test of a file is asked for."""

ROOMS = {
    "dp_pipelines.budget.": "tests/budget",
    "dp_pipelines.selection.": "tests/selection",
    "dp_pipelines.noise.": "tests/noise",
    "dp_pipelines.ledger.": "tests/ledger",
}
"""Whose tests decide about random mutants: those of the room."""

SAMPLED = {
    "dp_pipelines.budget.": ("accountant", "grid", "losses", "mechanism", "renyi", "sampled", "window"),
    "dp_pipelines.selection.": ("exact", "exponential", "thresholds", "truncated_geometric"),
    "dp_pipelines.noise.": ("balls", "entropy", "laws", "magnitudes", "samplers", "smooth", "tables"),
    "dp_pipelines.ledger.": ("entries", "events", "refusals", "rules", "state", "units"),
}
"""The modules of which random mutants are taken."""

IN_PROCESS = ["-m", "not slow and not bench", "-k", "not postgres and not test_processes and not test_machine"]
"""Of these tests a profile tells whom they call."""

SLACK_SECONDS, TIMES = 60.0, 5.0
"""A run is cut off after so many times what its tests took on the copy as it is, and so many seconds."""

LONGEST = 3600.0
"""Seconds that tests may take on the copy as it is."""

Found = TypeVar("Found")


class Workers:
    """Some copies, each with its server."""

    def __init__(self, number: int, folder: Path) -> None:
        self._free: queue.Queue[Copy] = queue.Queue()
        self._pool = concurrent.futures.ThreadPoolExecutor(number)
        for at in range(number):
            place = folder / f"copy{at}"
            place.mkdir()
            self._free.put(Copy(ROOT, place))
        self.copies = tuple(self._free.queue)

    def each(self, items: Sequence[Found], act: Callable[[Copy, Found], Answer]) -> Iterator[tuple[Found, Answer]]:
        """What each item gives, in the order in which they end."""

        def of(item: Found) -> tuple[Found, Answer]:
            copy = self._free.get()
            try:
                return item, act(copy, item)
            finally:
                self._free.put(copy)

        with contextlib.ExitStack() as stack:
            tasks = [self._pool.submit(of, item) for item in items]
            stack.callback(lambda: [task.cancel() for task in tasks])
            for task in concurrent.futures.as_completed(tasks):
                yield task.result()

    def close(self) -> None:
        """End the servers."""
        self._pool.shutdown()
        for copy in self.copies:
            copy.close()


@contextlib.contextmanager
def workers(number: int) -> Iterator[Workers]:
    """Some copies in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        made = Workers(number, Path(folder))
        try:
            yield made
        finally:
            made.close()


def path_of(module: str, files: dict[str, Path]) -> str:
    """The file of a module under the copy's dp_pipelines/."""
    package = max((name for name in PACKAGE_FOLDERS if (module + ".").startswith(name + ".")), key=len)
    inside = files[module].relative_to(ROOT / PACKAGE_FOLDERS[package])
    return str(Path(*package.split(".")[1:]) / inside)


def must_pass(answer: Answer, what: str) -> Answer:
    """Stop where tests fail without any fault."""
    if answer.ended not in (0, NONE_OF_THEM):
        sys.exit(f"{what}: tests fail on the tree as it is\n{answer.said[-4000:]}")
    return answer


def must_be_the_copy(copy: Copy, tests: Sequence[str]) -> None:
    """Stop where a fault at import is not found: these tests run on other files."""
    init = copy.root / "dp_pipelines" / "__init__.py"
    if not copy.run_with("__init__.py", "raise RuntimeError('planted')\n" + init.read_text(), tests, limit=120).found:
        sys.exit("the tests do not import the copy")


class Known(NamedTuple):
    """What tests do on the tree as it is: how long each takes, and whom each calls."""

    durations: dict[str, float]
    calls: dict[str, frozenset[str]]

    def to_json(self) -> str:
        """As text."""
        return json.dumps([self.durations, {name: sorted(called) for name, called in self.calls.items()}])

    @classmethod
    def from_json(cls, text: str) -> "Known":
        """What `to_json` wrote."""
        durations, calls = json.loads(text)
        return cls(durations, {name: frozenset(called) for name, called in calls.items()})


def known(made: Workers, parts: Sequence[Sequence[str]], *, calls: bool = False) -> Known:
    """Run all tests on the copies as they are, some at a time."""
    options = IN_PROCESS if calls else []

    def ask(copy: Copy, part: Sequence[str]) -> Answer:
        return must_pass(copy.run(part, calls=calls, limit=LONGEST, options=options), "before")

    durations: dict[str, float] = {}
    called: dict[str, frozenset[str]] = {}
    for _, answer in made.each(parts, ask):
        durations |= answer.durations
        called |= {name: frozenset(names) for name, names in answer.calls.items()}
    return Known(durations, called)


def run_table(number: int, only: str) -> int:
    """Every fault of the table is found by its own tests."""
    begun, trees, places = time.monotonic(), Trees(modules()), table.tests(ROOT)
    faults = [fault for fault in table.faults() if only in fault.subject + fault.fault]
    nodes = {fault: table.nodes(fault, places) for fault in faults}
    texts = {fault: trees.changed(fault.where, fault.module, fault.before, fault.after) for fault in faults}
    missed = []
    with workers(number) as made:
        everything = sorted({node for of_one in nodes.values() for node in of_one})
        by_file = itertools.groupby(everything, key=lambda node: node.partition("::")[0])
        must_be_the_copy(made.copies[0], everything[:1])
        seen = known(made, [list(of_file) for _, of_file in by_file])

        def plant(copy: Copy, fault: table.Fault) -> Answer:
            module, text = texts[fault]
            return copy.run_with(path_of(module, trees.files), text, nodes[fault], limit=limit(seen, nodes[fault]))

        for at, (fault, answer) in enumerate(made.each(faults, plant), start=1):
            print(f"{at:4d}/{len(faults)} {answer.word:9} {answer.seconds:5.1f} s  {fault.fault}", flush=True)
            if not answer.found or answer.at_import:  # a fault that stops everything shows nothing of its test
                missed.append(fault)
                print(answer.said[-1500:])
    print(f"{len(faults) - len(missed)} of {len(faults)} faults found in {time.monotonic() - begun:.0f} s")
    return 1 if missed else 0


def limit(seen: Known, nodes: Sequence[str]) -> float:
    """Seconds after which tests are cut off."""
    took = sum(seconds for name, seconds in seen.durations.items() if name.startswith(tuple(nodes)))
    return SLACK_SECONDS + TIMES * took


def population() -> list[Mutant]:
    """All random mutants that the sample is taken from."""
    files = modules()
    names = [room + module for room, some in SAMPLED.items() for module in some]
    return [mutant for name in names for mutant in random_mutants.mutants(name, files[name].read_text())]


def run_random(number: int, only: str, kept: Path | None) -> int:
    """Of a sample of random mutants, those that are not shown to change nothing are found, but for one in twenty."""
    begun, files, shown = time.monotonic(), modules(), equivalent.reasons()
    chosen = [mutant for mutant in random_mutants.sample(population(), SAMPLE) if only in mutant.name + mutant.module]
    same = [mutant for mutant in chosen if mutant.name in shown]
    chosen = [mutant for mutant in chosen if mutant.name not in shown]
    survived = []
    with workers(number) as made:
        tests = sorted(
            str(path.relative_to(ROOT))
            for room in {ROOMS[room_of(mutant)] for mutant in chosen}
            for path in (ROOT / room).rglob("test_*.py")
            if path.stem not in ("test_processes", "test_machine")
        )
        must_be_the_copy(made.copies[0], tests[:1])
        if kept is not None and kept.exists():
            seen = Known.from_json(kept.read_text())
        else:
            seen = known(made, [[test] for test in tests], calls=True)
        if kept is not None:
            kept.write_text(seen.to_json())

        def plant(copy: Copy, mutant: Mutant) -> Answer:
            path = path_of(mutant.module, files)
            nodes = deciding(seen, ROOMS[room_of(mutant)], f"{path}:{mutant.line}" if mutant.line else "")
            if not nodes:
                return Answer(0, False, 0.0, "no test calls it", {}, {})
            text = random_mutants.planted(files[mutant.module].read_text(), mutant)
            return copy.run_with(path, text, nodes, limit=limit(seen, nodes))

        for at, (mutant, answer) in enumerate(made.each(chosen, plant), start=1):
            if not answer.found:
                survived.append(mutant)
            print(
                f"{at:4d}/{len(chosen)} {answer.word:9} {answer.seconds:5.1f} s  {mutant.module}: {mutant.name}",
                flush=True,
            )
    part = 1 - len(survived) / max(1, len(chosen))
    for mutant in sorted(survived):
        print(f"survived in {mutant.module}\n  {mutant.name}")
    print(f"{len(same)} of {len(same) + len(chosen)} are shown to change nothing; of the others {part:.1%} were found")
    print(f"{time.monotonic() - begun:.0f} s")
    return 0 if part >= WANTED else 1


def room_of(mutant: Mutant) -> str:
    """The room of a mutant's module."""
    return next(room for room in ROOMS if mutant.module.startswith(room))


def deciding(seen: Known, room: str, function: str) -> list[str]:
    """The tests of a room that call a function, or, of what is no function, all of them; quickest first."""
    of_room = [name for name in seen.durations if name.startswith(room + "/")]
    if function:
        of_room = [name for name in of_room if function in seen.calls.get(name, ())]
    return sorted(of_room, key=lambda name: seen.durations[name])


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--random", action="store_true", help="the sample of random mutants instead of the table")
    parser.add_argument("--only", default="", help="those whose text holds this")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--known", type=Path, help="keep here what tests do without a fault, and take it from here later"
    )
    asked = parser.parse_args()
    if asked.random:
        return run_random(asked.workers, asked.only, asked.known)
    return run_table(asked.workers, asked.only)


if __name__ == "__main__":
    sys.exit(main())
