"""Write the table of faults into the page for reviewers.

In: table.yaml. Out: docs/reviewers.md, with the lines between two marks made anew. A test holds both equal. Run it after a change
of the table: `python tests/mutants/write_table.py`.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.mutants import table  # noqa: E402

PAGE = ROOT / "docs" / "reviewers.md"
BEGIN, END = "<!-- faults: written by tests/mutants/write_table.py -->", "<!-- end of faults -->"


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
    """A page with the table as it is now."""
    before, mark, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (mark and end):
        raise ValueError(f"the page has no lines {BEGIN} and {END}")
    return "\n".join([before + BEGIN, "", *lines(), "", END + after])


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
