"""Plant faults, one after the other, into a copy of the tree, and see that tests find each of them.

In: the table of faults, the seeded sample of random ones, or every small change of some modules. Out: a line for each, and how
many were found; exit code 1 where the table or a module has one that was not, or where too many of the sample were not. Holds:
all tests that decide pass on the copy as it is; a fault at import, planted first, shows that they run on the copy.

    python tests/mutants/run.py [--random | --every MODULE... [--sample 50] [--within 20] [--direct] [--figures]]
        [--only EXPRESSION] [--workers 2] [--keep FILE]
"""

import argparse
import concurrent.futures
import contextlib
import itertools
import queue
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.helpers.source import PACKAGE_FOLDERS, imports, modules  # noqa: E402
from tests.mutants import equivalent, figures, random_mutants, table  # noqa: E402
from tests.mutants.kept import Kept, Known  # noqa: E402
from tests.mutants.random_mutants import Mutant  # noqa: E402
from tests.mutants.syntax import Trees  # noqa: E402
from tests.mutants.tree import Answer, Change, Copy  # noqa: E402

INSIDE = "dp_pipelines/"
"""Where a copy has all modules."""

SAMPLE = 400
WANTED = 0.95

NONE_OF_THEM = 5
"""How pytest ends where no test of a file is asked for."""

ROOMS = {
    "dp_pipelines.accounting.": "tests/accounting",
    "dp_pipelines.selection.": "tests/selection",
    "dp_pipelines.noise.": "tests/noise",
    "dp_pipelines.ledger.": "tests/ledger",
    "dp_pipelines.planning.": "tests/planning",
    "dp_pipelines.release.": "tests/release",
    "dp_pipelines.collected.": "tests/collected",
}
"""Whose tests decide about random mutants: those of the room."""

SAMPLED = {
    "dp_pipelines.accounting.": (
        *("accountant", "composition", "convolution", "divergences", "dominating_pairs", "mechanism_record"),
        *("record_kinds", "renyi", "subsampled_gaussian"),
    ),
    "dp_pipelines.selection.": ("exact", "exponential", "thresholds", "truncated_geometric"),
    "dp_pipelines.noise.": (
        *("alias_tables", "entropy", "interval_arithmetic", "laws", "magnitudes", "samplers"),
        "smooth_sensitivity",
    ),
    "dp_pipelines.ledger.": ("entries", "events", "refusals", "rules", "state", "units"),
}
"""The modules of which random mutants are taken."""

OTHER_PROCESSES = ("test_processes", "test_machine")
"""Tests of which nothing tells whom they call: what they run runs elsewhere, or for minutes."""

IN_PROCESS = ["-m", "not slow and not bench", "-k", "not postgres"]
"""Which of the others decide about random mutants."""

SLACK_SECONDS, TIMES = 60.0, 5.0
"""A run is cut off after so many times what its tests took on the copy as it is, and so many seconds, of processor time."""

QUICK_SLACK_SECONDS, QUICK_TIMES = 5.0, 3.0
"""The same for tests that are collected already."""

LONGEST = 3600.0
"""Seconds that tests may take on the copy as it is."""

Item = TypeVar("Item")
Given = TypeVar("Given")


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

    def each(self, items: Sequence[Item], act: Callable[[Copy, Item], Given]) -> Iterator[tuple[Item, Given]]:
        """What each item gives, in the order in which they end."""

        def of(item: Item) -> tuple[Item, Given]:
            copy = self._free.get()
            try:
                return item, act(copy, item)
            finally:
                self._free.put(copy)

        tasks = [self._pool.submit(of, item) for item in items]
        try:
            for task in concurrent.futures.as_completed(tasks):
                yield task.result()
        finally:
            for task in tasks:
                task.cancel()

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


def must_be_the_copy(copy: Copy, tests: Sequence[str]) -> None:
    """Stop where a fault at import is not found: these tests run on other files."""
    init = copy.root / "dp_pipelines" / "__init__.py"
    if not copy.run_with(
        INSIDE + "__init__.py", "raise RuntimeError('planted')\n" + init.read_text(), tests, limit=600
    ).found:
        sys.exit("the tests do not import the copy")


def known(
    made: Workers, parts: Sequence[Sequence[str]], kept: Kept, options: Sequence[str] = (), *, calls: bool = False
) -> Known:
    """Run all tests on the copies as they are, some at a time; stop where one fails.

    Args:
        made: the copies.
        parts: tests that run together.
        kept: answers.
        options: of pytest.
        calls: whether to note whom each test calls.
    """

    def ask(copy: Copy, part: Sequence[str]) -> None:
        question = " ".join(["calls of" if calls else "seconds of", *options, *part])
        if question not in kept:
            answer = copy.run(part, calls=calls, limit=LONGEST, options=options)
            if answer.ended not in (0, NONE_OF_THEM):
                sys.exit(f"tests fail on the tree as it is\n{answer.said[-4000:]}")
            kept[question] = [answer.durations, answer.calls]
        told.append(kept[question])

    told: list[tuple[dict[str, float], dict[str, list[str]]]] = []
    for _ in made.each(parts, ask):
        pass
    durations = {name: seconds for of_part, _ in told for name, seconds in of_part.items()}
    return Known(durations, {name: frozenset(called) for _, of_part in told for name, called in of_part.items()})


def planted_quickly(copy: Copy, change: Change, nodes: Sequence[str], seen: Known, killers: Counter[str]) -> Answer:
    """Run collected tests with a change, those first that found most others; from the beginning if that cannot be done."""
    ordered = sorted(nodes, key=lambda name: (-killers[name], seen.durations[name]))
    seconds = QUICK_SLACK_SECONDS + QUICK_TIMES * sum(seen.durations[name] for name in nodes)
    answer = copy.run_exchanged(change, ordered, seconds=seconds)
    return answer or planted(copy, change.path, change.text, ordered, seen)


def planted(copy: Copy, path: str, text: str, nodes: Sequence[str], seen: Known) -> Answer:
    """Run tests with a fault."""
    return copy.run_with(path, text, nodes, limit=SLACK_SECONDS + TIMES * seen.seconds(nodes))


def run_table(number: int, only: str, kept: Kept) -> int:
    """Every fault of the table is found by its own tests."""
    begun, trees, places = time.monotonic(), Trees(modules()), table.tests(ROOT)
    faults = [fault for fault in table.faults() if re.search(only, fault.subject + fault.fault)]
    nodes = {fault: table.nodes(fault, places) for fault in faults}
    texts = {fault: text_of(fault, trees) for fault in faults}
    missed = []
    with workers(number) as made:
        everything = sorted({node for of_one in nodes.values() for node in of_one})
        by_file = itertools.groupby(everything, key=lambda node: node.partition("::")[0])
        must_be_the_copy(made.copies[0], everything[:1])
        seen = known(made, [list(of_file) for _, of_file in by_file], kept)

        def plant(copy: Copy, fault: table.Fault) -> str:
            if fault.fault not in kept:
                path, text = texts[fault]
                answer = planted(copy, path, text, nodes[fault], seen)
                if answer.word not in ("found", "too long"):  # what stops everything shows nothing of its test
                    print(answer.said[-1500:])
                kept[fault.fault] = f"{answer.word} in {answer.seconds:.1f} s"
            return str(kept[fault.fault])

        for at, (fault, word) in enumerate(made.each(faults, plant), start=1):
            print(f"{at:4d}/{len(faults)} {word}: {fault.fault}", flush=True)
            if not word.startswith(("found", "too long")):
                missed.append(fault)
    print(f"{len(faults) - len(missed)} of {len(faults)} faults found in {time.monotonic() - begun:.0f} s")
    return 1 if missed else 0


def text_of(fault: table.Fault, trees: Trees) -> tuple[str, str]:
    """The file in which a fault stands, from the copy's root, and its text with the fault."""
    if fault.file:
        return fault.file, fault.changed_file(ROOT)
    module, text = trees.changed(fault.where, fault.module, fault.before, fault.after)
    return INSIDE + path_of(module, trees.files), text


def population() -> list[Mutant]:
    """All random mutants that the sample is taken from."""
    files = modules()
    names = [room + module for room, some in SAMPLED.items() for module in some]
    return [mutant for name in names for mutant in random_mutants.mutants(name, files[name].read_text())]


def run_random(number: int, only: str, kept: Kept) -> int:
    """Of a sample of random mutants, those that are not shown to change nothing are found, but for one in twenty."""
    begun = time.monotonic()
    chosen = [
        mutant for mutant in random_mutants.sample(population(), SAMPLE) if re.search(only, mutant.name + mutant.module)
    ]
    shown, survived, several = of_mutants(number, chosen, kept)
    part = 1 - len(survived) / max(1, several)
    print(f"{shown} of {shown + several} are shown to change nothing; of the others {part:.1%} were found")
    print(f"{time.monotonic() - begun:.0f} s")
    return 0 if part >= WANTED else 1


def run_every(number: int, asked: argparse.Namespace, kept: Kept) -> int:
    """Every mutant of some modules, thorough ones too, or a sample of each, is found or shown to change nothing."""
    begun, files = time.monotonic(), modules()
    names = [name for name in files if name.startswith(tuple(asked.every)) and name.startswith(tuple(ROOMS))]
    chosen: dict[str, list[Mutant]] = {}
    counts: dict[str, int] = {}
    for name in names:
        everything = random_mutants.mutants(name, files[name].read_text(), thorough=True)
        of_module = random_mutants.sample(everything, asked.sample)
        counts[name] = len(everything)
        chosen[name] = [mutant for mutant in of_module if re.search(asked.only, mutant.name + mutant.module)]
    together = [mutant for of_module in chosen.values() for mutant in of_module]
    shown, survivors, several = of_mutants(
        number, together, kept, thorough=True, within=asked.within, direct=asked.direct
    )
    print(f"{shown} of {shown + several} are shown to change nothing; {len(survivors)} of the others survived")
    print(f"{time.monotonic() - begun:.0f} s")
    if asked.figures:
        explained = equivalent.reasons()
        figures.update(
            figures.Figures(
                module=name,
                mutants=counts[name],
                planted=len(chosen[name]),
                found=len(chosen[name]) - argued - len(left),
                argued=argued,
                open=tuple(left),
            )
            for name in names
            if chosen[name]
            for argued in [sum(mutant.name in explained for mutant in chosen[name])]
            for left in [sorted(mutant.name for mutant in survivors if mutant.module == name)]
        )
    return 1 if survivors else 0


def own_tests(module: str, tests: Sequence[str]) -> list[str]:
    """Return the files of tests that have a module's name or import it; of all folders if none of these does."""
    name = module.rpartition(".")[2]
    files = [
        test
        for test in tests
        if Path(test).stem == f"test_{name}"
        or any((one + ".").startswith(module + ".") for one, _ in imports((ROOT / test).read_text(), "tests"))
    ]
    everywhere = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "tests").rglob("test_*.py"))]
    if not files and len(tests) < len(everywhere):
        return own_tests(module, everywhere)
    return sorted(files, key=lambda test: (Path(test).stem != f"test_{name}", test))


def of_mutants(
    number: int,
    chosen: Sequence[Mutant],
    kept: Kept,
    *,
    thorough: bool = False,
    within: float = LONGEST,
    direct: bool = False,
) -> tuple[int, list[Mutant], int]:
    """Plant mutants and print how each ends.

    Args:
        number: of copies.
        chosen: the mutants.
        kept: answers.
        thorough: whether they are of the thorough kind.
        within: seconds that the tests of a mutant may take together; the slowest are left out.
        direct: whether the tests of files that import the module decide, in place of those that call the function.

    Returns:
        how many are shown to change nothing, which of the others survived, how many others there are.
    """
    files, explained = modules(), equivalent.reasons()
    others = [mutant for mutant in chosen if mutant.name not in explained]
    survived = []
    with workers(number) as made:
        rooms = {ROOMS[room_of(mutant)] for mutant in others}
        found = (path for room in sorted(rooms) for path in sorted((ROOT / room).rglob("test_*.py")))
        tests = [str(path.relative_to(ROOT)) for path in found if path.stem not in OTHER_PROCESSES]
        own = {mutant.module: own_tests(mutant.module, tests) for mutant in others} if direct else {}
        if direct:
            tests = sorted({test for files_of in own.values() for test in files_of})
        must_be_the_copy(made.copies[0], tests[:1])
        seen = known(made, [[test] for test in tests], kept, IN_PROCESS, calls=not direct)

        for copy in made.copies:
            copy.collect(tests, IN_PROCESS)
        killers = Counter[str]()

        def plant(copy: Copy, mutant: Mutant) -> str:
            question = f"{mutant.module} {mutant.name}"
            if question not in kept:
                path = path_of(mutant.module, files)
                function = f"{path}:{mutant.line}" if mutant.line else ""
                if direct:
                    nodes = seen.importing(own[mutant.module])
                else:
                    nodes = seen.deciding(ROOMS[room_of(mutant)], function)
                nodes = seen.within(nodes, within)
                text = random_mutants.planted(files[mutant.module].read_text(), mutant, thorough=thorough)
                change = Change(mutant.module, INSIDE + path, text)
                answer = planted_quickly(copy, change, nodes, seen, killers) if nodes else None
                if answer is not None:
                    killers.update(answer.failed)
                kept[question] = f"{answer.word} in {answer.seconds:.1f} s" if answer else "SURVIVED: no test calls it"
            return str(kept[question])

        for at, (mutant, word) in enumerate(made.each(others, plant), start=1):
            print(f"{at:4d}/{len(others)} {word}: {mutant.module}: {mutant.name}", flush=True)
            if not word.startswith(("found", "too long", "at import")):
                survived.append(mutant)
    for mutant in sorted(survived):
        print(f"survived in {mutant.module}\n  {mutant.name}")
    return len(chosen) - len(others), survived, len(others)


def room_of(mutant: Mutant) -> str:
    """The room of a mutant's module."""
    return next(room for room in ROOMS if mutant.module.startswith(room))


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--random", action="store_true", help="the sample of random mutants instead of the table")
    parser.add_argument("--every", nargs="+", metavar="MODULE", help="every mutant of modules whose names begin so")
    parser.add_argument("--sample", type=int, default=10**9, help="of --every: at most so many mutants of each module")
    parser.add_argument("--within", type=float, default=LONGEST, help="of --every: seconds of tests for each mutant")
    parser.add_argument(
        "--direct", action="store_true", help="of --every: with tests that import the module, not who calls"
    )
    parser.add_argument("--figures", action="store_true", help="of --every: write small_changes.yaml")
    parser.add_argument("--only", default="", help="those whose text this regular expression matches")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="write answers here, and go on from there the next time")
    asked = parser.parse_args()
    kept = Kept(asked.keep)
    if asked.every:
        return run_every(asked.workers, asked, kept)
    return (run_random if asked.random else run_table)(asked.workers, asked.only, kept)


if __name__ == "__main__":
    sys.exit(main())
