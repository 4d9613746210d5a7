"""The table of faults that must be found, and the tests that find them.

In: table.yaml; the tests of a tree. Out: faults, and the node ids of their tests. Holds: tests are known by the names of their
functions, so that a file of tests may move; a name that no test has, or that two files share without saying which, is an error.
"""

import ast
import dataclasses
from pathlib import Path

import yaml

TABLE = Path(__file__).with_name("table.yaml")

SUBJECTS = (
    "bounding",
    "lattice",
    "sensitivity",
    "sums",
    "noise",
    "selection",
    "release",
    "accounting",
    "split",
    "training",
    "evaluation",
    "ledger",
    "staging",
    "masking",
    "runner",
    "sources",
    "extensions",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault of one place.

    Args:
        subject: one of `SUBJECTS`.
        fault: what is wrong, in words.
        where: the qualified name of the function, class or constant that has the place.
        module: the last parts of the module's name; heeded only where the place is in several modules of that qualified name.
        before: the syntax of the place.
        after: what stands there instead.
        file: of a fault that is not in Python: its path from the root, which holds `before` once; `where` is a name in it.
        found_by: names of tests, as `test_name`, `test_name[parameter]` or, where several files have it, `file::test_name`.
    """

    subject: str
    fault: str
    where: str
    module: str = ""
    before: str
    after: str
    found_by: tuple[str, ...]
    file: str = ""

    def changed_file(self, root: Path) -> str:
        """Return the text of `file` with the fault.

        Raises:
            LookupError: it does not hold the piece once.
        """
        text = (root / self.file).read_text()
        if text.count(self.before) != 1 or self.where not in text:
            raise LookupError(f"{self.fault}: {self.file} holds {self.before!r} {text.count(self.before)} times")
        return text.replace(self.before, self.after)


def faults() -> list[Fault]:
    """All faults of the table."""
    rows = yaml.safe_load(TABLE.read_text())
    return [Fault(**{**row, "found_by": tuple(row["found_by"])}) for row in rows]


def tests(root: Path) -> dict[str, list[str]]:
    """Where tests are: the files, from the root, that have a test function of a name."""
    found: dict[str, list[str]] = {}
    for path in sorted((root / "tests").rglob("test_*.py")):
        for statement in ast.parse(path.read_text()).body:
            if isinstance(statement, ast.FunctionDef) and statement.name.startswith("test_"):
                found.setdefault(statement.name, []).append(str(path.relative_to(root)))
    return found


def nodes(fault: Fault, places: dict[str, list[str]]) -> list[str]:
    """The node ids of a fault's tests.

    Raises:
        LookupError: there is no such test, or several.
    """
    result = []
    for name in fault.found_by:
        stem, mark, test = name.rpartition("::")
        function, bracket, parameter = test.partition("[")
        files = [file for file in places.get(function, ()) if not mark or Path(file).stem == stem]
        if len(files) != 1:
            raise LookupError(f"{fault.fault}: {name} is in {files or 'no file'}")
        result.append(f"{files[0]}::{function}{bracket}{parameter}")
    return result
