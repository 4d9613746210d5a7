"""A copy of the tree in which faults are planted, and a server in it that runs tests.

In: the checkout. Out: how tests end in the copy, as it is or with the text of one module changed. Holds: the checkout is never
changed; transforms/ and jobs/ lie inside the copy's dp_pipelines/, so that all of ours is found there and nowhere else; after
each run the copy is as it was. Not covered: tests that need git.
"""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

LEFT_OUT = shutil.ignore_patterns(
    ".*", "build", "dist", "out", "data", "__pycache__", "*.egg-info", "htmlcov", "node_modules"
)

INSIDE = ("transforms", "jobs")
"""Folders of the checkout that are imported as parts of dp_pipelines."""

FAILED = re.compile(r"^FAILED (\S+)", re.MULTILINE)

MARKED = itertools.count(946684800)
"""The times of change of modules with a fault, each another one: no bytecode of a module is taken for another form of it."""


NOT_EXCHANGED, ELSEWHERE = 98, 99
"""How a child ends that could not make a change, or that runs on other files."""


class Change(NamedTuple):
    """A change of one module: its name, its path in the copy, and its whole new text."""

    module: str
    path: str
    text: str


class Answer(NamedTuple):
    """How tests ended: pytest's exit code, whether they were cut off, how long they took, what they said, who called what.

    `failed` has the node ids of tests that failed.
    """

    ended: int
    late: bool
    seconds: float
    said: str
    durations: dict[str, float]
    calls: dict[str, list[str]]
    failed: list[str]

    @property
    def found(self) -> bool:
        """Whether a test failed, did not end, or could not even begin for what the module does when it is imported."""
        return self.late or self.ended in (1, 2) or self.ended < 0 or self.at_import

    @property
    def at_import(self) -> bool:
        """Whether no test began, since what it imports fails: pytest then says that it does not find the test."""
        return self.ended == 4 and any(words in self.said for words in ("ERROR collecting", "while loading conftest"))

    @property
    def word(self) -> str:
        """For the line of a fault."""
        if self.found:
            return "too long" if self.late else "at import" if self.at_import else "found"
        return "SURVIVED" if self.ended == 0 else f"BROKEN {self.ended}"


def copy_tree(root: Path, folder: Path) -> None:
    """Copy a checkout, so that all of the package is found in the copy and nowhere else.

    Args:
        root: the checkout.
        folder: an empty folder.
    """
    for path in root.iterdir():
        if LEFT_OUT(str(root), [path.name]) or path.name in INSIDE:
            continue
        if path.is_dir():
            shutil.copytree(path, folder / path.name, ignore=LEFT_OUT, symlinks=True)
        else:
            shutil.copy2(path, folder / path.name)
    for name in INSIDE:
        shutil.copytree(root / name, folder / "dp_pipelines" / name, ignore=LEFT_OUT)
        (folder / name).symlink_to(Path("dp_pipelines") / name)


class Copy:
    """A copy of a checkout, with a server.

    Args:
        root: the checkout.
        folder: an empty folder.
    """

    def __init__(self, root: Path, folder: Path) -> None:
        self.root = folder
        copy_tree(root, folder)
        self._server = self._serve("server.py")
        self._ready: subprocess.Popen[str] | None = None

    def _serve(self, script: str, *arguments: str) -> subprocess.Popen[str]:
        # CI=1: hypothesis repeats the same examples, so that what is found today is found tomorrow.
        environment = {**os.environ, "PYTHONPATH": str(self.root), "CI": "1"}
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            environment[name] = "1"
        server = subprocess.Popen(
            [sys.executable, str(self.root / "tests" / "mutants" / script), *arguments],
            cwd=self.root,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert server.stdout is not None
        if not server.stdout.readline():
            raise RuntimeError("the server of the copy did not start")
        return server

    def run(
        self,
        tests: Sequence[str],
        *,
        limit: float = 600,
        options: Sequence[str] = (),
        calls: bool = False,
    ) -> Answer:
        """Run tests in a new process."""
        log = self.root / "run.log"
        kept = log.with_name("run.log.json")
        kept.unlink(missing_ok=True)
        asked = {
            "tests": list(tests),
            "limit": limit,
            "options": list(options),
            "log": str(log),
            "calls": calls,
        }
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(asked) + "\n")
        self._server.stdin.flush()
        answer = json.loads(self._server.stdout.readline())
        known = json.loads(kept.read_text()) if kept.exists() else {"durations": {}, "calls": {}}
        said = log.read_text(errors="replace")
        return Answer(answer["ended"], answer["late"], answer["seconds"], said, **known, failed=FAILED.findall(said))

    def run_with(self, path: str, text: str, tests: Sequence[str], *, limit: float) -> Answer:
        """Run tests while a file of the copy holds another text.

        Args:
            path: of the file, from the copy's root.
            text: what it holds meanwhile.
            tests: node ids.
            limit: seconds of processor time after which they are cut off.
        """
        file = self.root / path
        kept, times = file.read_bytes(), file.stat()
        try:
            file.write_text(text)
            os.utime(file, (changed := next(MARKED), changed))
            return self.run(tests, limit=limit)
        finally:
            file.write_bytes(kept)
            os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))

    def collect(self, tests: Sequence[str], options: Sequence[str]) -> None:
        """Collect tests once, for `run_exchanged`."""
        self._ready = self._serve("ready_server.py", *options, *tests)

    def run_exchanged(self, change: Change, tests: Sequence[str], *, seconds: float) -> Answer | None:
        """Run collected tests with the code of some functions exchanged.

        Args:
            change: of one module.
            tests: node ids, in the order in which they run; the first failure ends the run.
            seconds: of processor time after which they are cut off.

        Returns:
            how they ended; None if the change cannot be made that way.
        """
        job = {**change._asdict(), "tests": list(tests), "limit": seconds}
        assert self._ready is not None
        assert self._ready.stdin is not None
        assert self._ready.stdout is not None
        self._ready.stdin.write(json.dumps(job) + "\n")
        self._ready.stdin.flush()
        answer = json.loads(self._ready.stdout.readline())
        if answer["ended"] in (NOT_EXCHANGED, ELSEWHERE):
            return None
        failed = [answer["failed"]] if answer["failed"] else []
        return Answer(answer["ended"], answer["late"], answer["seconds"], "", {}, {}, failed)

    def close(self) -> None:
        """End the servers."""
        for server in (self._server, self._ready):
            if server is not None:
                assert server.stdin is not None
                server.stdin.close()
                server.wait(60)


def copied(root: Path) -> tuple[Copy, tempfile.TemporaryDirectory[str]]:
    """A copy in a temporary folder, which goes with it."""
    folder = tempfile.TemporaryDirectory(prefix="mutants-")
    return Copy(root, Path(folder.name)), folder
