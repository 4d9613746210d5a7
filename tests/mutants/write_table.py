"""Write the table of faults and the figures of small changes into the page for reviewers.

In: table.yaml, small_changes.yaml. Out: docs/reviewers.md, with the lines between two pairs of marks made anew. A test holds
them equal. Run it after a change of either: `python tests/mutants/write_table.py`.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.mutants import figures, table  # noqa: E402

PAGE = ROOT / "docs" / "reviewers.md"
BEGIN, END = "<!-- faults: written by tests/mutants/write_table.py -->", "<!-- end of faults -->"
FIGURES = "<!-- small changes: written by tests/mutants/write_table.py -->", "<!-- end of small changes -->"


def lines() -> list[str]:
    """The table in Markdown, by subject."""
    faults = table.faults()
    made = [f"{len(faults)} faults:", "", "| of | fault | in | found by |", "|---|---|---|---|"]
    for subject in table.SUBJECTS:
        for fault in (fault for fault in faults if fault.subject == subject):
            tests = ", ".join(f"`{name}`" for name in fault.found_by)
            made.append(f"| {subject} | {fault.fault} | `{fault.where}` | {tests} |")
    return made


def written(page: str) -> str:
    """Return a page with both tables as they are now."""
    return _between(_between(page, (BEGIN, END), lines()), FIGURES, figures.lines())


def _between(page: str, marks: tuple[str, str], made: list[str]) -> str:
    before, mark, rest = page.partition(marks[0])
    _, end, after = rest.partition(marks[1])
    if not (mark and end):
        raise ValueError(f"the page has no lines {marks[0]} and {marks[1]}")
    return "\n".join([before + marks[0], "", *made, "", marks[1] + after])


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
