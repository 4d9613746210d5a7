"""Every form of a release goes every way of the command line, and no cell of a row is seen anywhere on the way.

In: the forms of `tests/baseline/forms.py`, with rows of one unit whose cells can be recognised (`tests/helpers/marked_rows.py`).
Out: exit codes, the ledger, the published files, and a search of all that was printed and written. Holds: the forms are
enumerated, so that a new one goes these ways too. Not covered: `check` and `tune`, whose output is private and says so.
"""

import pathlib
import signal
import struct

import pyarrow.parquet
import pytest
import yaml

from dp_pipelines import extensions
from dp_pipelines.ledger import events
from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from tests.baseline import forms
from tests.golden.answers import call
from tests.helpers import marked_rows, warm_process
from tests.jobs.conftest import Said

INPUTS = {"data", "job.yaml", "visits.parquet", "keys.parquet", "public.parquet"}
ROWS = forms.ROWS + marked_rows.MANY
ALL_LOOKS = (
    ("page", "report", "out", "--output", "page.html"),
    ("page of runs", "report", "out", "--output", "trends.html"),
    ("describe", "describe", "job.yaml", "--output", "assessment.md"),
    ("spent", "ledger", "show", "job.yaml"),
    ("spent as JSON", "ledger", "show", "job.yaml", "--json"),
    ("proof", "ledger", "export", "job.yaml", "--output", "proof.json"),
    ("verify", "ledger", "verify", "job.yaml"),
)
"""Commands that only look, by name."""

LOOKS = [look for look in ALL_LOOKS if look[1] != "describe" or extensions.is_installed("command", "describe")]

BUDGET = {"epsilon": 4.0, "delta": 1e-12}
"""By which a key that only the marked unit has is published once in 1e10 runs of all these tests."""

RUN = ("run", "job.yaml", "--output", "out", "--run-id")
RUN_ELSEWHERE = ("run", "job.yaml", "--output", "elsewhere")


class World:
    """A folder with marked rows and a job, and what commands printed there.

    Args:
        folder: an empty one.
        form: the name of the form.
    """

    def __init__(self, folder: pathlib.Path, form: str) -> None:
        self.folder, self.said = folder, dict[str, str]()
        forms.write(folder)
        for path in (folder / "data" / "b.parquet", folder / "visits.parquet"):
            pyarrow.parquet.write_table(marked_rows.marked(pyarrow.parquet.read_table(path)), path, row_group_size=300)
        (folder / "job.yaml").write_text(yaml.safe_dump({**forms.JOBS[form], "budget": BUDGET}, sort_keys=False))

    def do(self, way: str, *arguments: str, **point: str) -> Said:
        """Run a command, keep what it prints under the name of the way, and return it."""
        if point:
            ended = warm_process.run(list(arguments), folder=self.folder, **point)  # type: ignore[arg-type]
            said = Said(ended.returncode, ended.stdout, ended.stderr)
        else:
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(self.folder)
                said = call(*arguments)
        self.said[way] = f"{said.out}\n{said.err}"
        return said

    def published(self) -> dict[str, bytes]:
        """Return the files of the release, by name."""
        out = self.folder / "out"
        return {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}

    def events(self) -> list[str]:
        """Return the kinds of the events of the ledger."""
        ledger = Ledger.open(str(self.folder / DEFAULT_NAME))
        try:
            return [event.kind for event in ledger.history]
        finally:
            ledger.close()

    def leaks(self) -> list[str]:
        """Return the names of printed texts and of files in which a mark is found, or the number of rows."""
        without_noise = {way: text for way, text in self.said.items() if way not in ("resume", "again")}
        return [
            *marked_rows.texts_with_marks(self.said),
            *marked_rows.texts_with_number(without_noise, ROWS),
            *marked_rows.files_with_marks(self.folder, INPUTS),
        ]


@pytest.mark.parametrize("form", forms.JOBS)
def test_a_form_goes_every_way_and_no_cell_is_seen(tmp_path: pathlib.Path, form: str) -> None:
    world = World(tmp_path, form)
    assert world.do("plan", "plan", "job.yaml").code == 0
    assert world.do("kill", *RUN, "one", point=events.RUN_STAGED, when="after").code == -signal.SIGKILL
    assert world.do("killed", "runs", "job.yaml").code == 0
    assert world.do("resume", *RUN, "one").code == 0
    kinds, files = world.events(), world.published()
    charges = (events.PLAN_FROZEN, events.RUN_RESERVED, events.RUN_COMMITTED, events.RUN_PUBLISHED)
    assert [kinds.count(kind) for kind in charges] == [1, 1, 1, 1]
    assert world.do("again", *RUN, "one").code == 0
    assert (world.events(), world.published()) == (kinds, files)
    assert world.do("beyond the budget", *RUN_ELSEWHERE, "--run-id", "two").code == 3
    for way, *arguments in LOOKS:
        assert world.do(way, *arguments).code == 0
    assert world.published() == files
    damage(tmp_path / "data" / "b.parquet")
    assert world.do("damaged", *RUN_ELSEWHERE, "--ledger", "none").code == 1
    assert not (tmp_path / "elsewhere").exists()
    assert world.leaks() == []


def damage(path: pathlib.Path) -> None:
    """Overwrite the pages of a Parquet file: its footer, which is read before any row, stays."""
    content = path.read_bytes()
    path.write_bytes(content[:4] + bytes(len(content) // 2) + content[4 + len(content) // 2 :])


def test_marks_are_found_wherever_they_are(tmp_path: pathlib.Path) -> None:
    rows = marked_rows.marked(forms.rows())
    places = {
        "cells.parquet": lambda path: pyarrow.parquet.write_table(rows.select(["product"]), path, compression="zstd"),
        "numbers.parquet": lambda path: pyarrow.parquet.write_table(rows.select(["price"]), path, compression="zstd"),
        "page.html": lambda path: path.write_text(f"<td>{marked_rows.UNIT:,}</td>"),
        "weights.safetensors": lambda path: path.write_bytes(b"x" + struct.pack("<d", marked_rows.NUMBER)),
        f"{marked_rows.TEXT}.csv": lambda path: path.write_text(""),
    }
    (tmp_path / "deep").mkdir()
    for name, write in places.items():
        write(tmp_path / "deep" / name)
    (tmp_path / "deep" / "clean.txt").write_text("nothing")
    assert set(marked_rows.files_with_marks(tmp_path)) == set(places)
    assert marked_rows.files_with_marks(tmp_path, {"deep"}) == []
    texts = {"count": f"read {ROWS:,} rows", "cell": f"cannot read {marked_rows.TEXT!r}", "other": f"1.{ROWS} {ROWS}5"}
    assert marked_rows.texts_with_marks(texts) == ["cell"]
    assert marked_rows.texts_with_number(texts, ROWS) == ["count"]
