"""Where parties meet: that all run the same, and the sum of their numbers.

In: who takes part, what must be the same, this party's numbers. Out: opened sums. Holds: the protocol runs in a process of its
own, of which nothing is shown; an error says which public thing differs, or that somebody did not come. Not covered: what the
numbers mean.
"""

import dataclasses
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping

import numpy as np

from dp_pipelines.errors import RequestError
from dp_pipelines.extensions.two_organisations import secure_sum
from dp_pipelines.jobs.run.pipelines import RunFailed
from dp_pipelines.jobs.runners import processes
from dp_pipelines.jobs.spec.party_models import PartiesModel
from dp_pipelines.kernels.lattice import Integers

NOBODY = "nothing was published"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Meeting:
    """What one party needs to meet the others.

    Args:
        parties: all of them.
        name: of this one.
        said: what must be the same at all, by its name: digests and other public text.
    """

    parties: PartiesModel
    name: str
    said: Mapping[str, str]

    def agree(self, ledger: str) -> None:
        """Meet without numbers, before anything is charged or read.

        Args:
            ledger: a digest of what tells this party's ledger from any other.

        Raises:
            RequestError: something differs, or parties have one ledger.
            RunFailed: somebody did not come.
        """
        meeting = dataclasses.replace(self, said={**self.said, secure_sum.LEDGER: ledger})
        with tempfile.TemporaryDirectory() as folder:
            differs = meeting._take_part(pathlib.Path(folder), None, "nothing was charged or read")
        if differs == [secure_sum.LEDGER]:
            raise RequestError(
                field="--ledger",
                message="is the ledger of two parties, which would take their runs for one",
                hint="give each its own: copy the job file to a folder of each, or name another ledger",
            )
        if differs:
            differs = [name for name in differs if name != secure_sum.LEDGER]
            if "plans" in differs:  # then their rounds do
                differs.remove("rounds")
            listed = " and ".join(differs)
            hint = "copy one job file to all, and give all the same --run-id and --param"
            if differs == ["rounds"]:
                hint = (
                    "their ledgers have counted different numbers of runs of this plan, whose split gives each its own noise: "
                    "write split: constant, or another budget"
                )
            raise RequestError(field="parties", message=f"do not run the same: {listed} differ", hint=hint)

    def add(self, numbers: Integers, folder: pathlib.Path) -> Integers:
        """The sums of all parties' numbers.

        Args:
            numbers: of this party, as many as every other has; of one without rows nobody asks which.
            folder: a private one.

        Raises:
            RunFailed: somebody left, or something differs.
        """
        np.save(folder / "numbers.npy", numbers)
        differs = self._take_part(
            folder, folder / "numbers.npy", "the run stays charged; run the same command again, all of you"
        )
        if differs:
            raise RunFailed(f"the parties do not run the same: {' and '.join(differs)} differ; {NOBODY}")
        sums: Integers = np.load(folder / "sums.npy")
        return sums

    def _take_part(self, folder: pathlib.Path, numbers: pathlib.Path | None, after: str) -> list[str]:
        """What differs; the sums lie in the folder then, if numbers were given."""
        # Parties find each other by their places, which are the same at all of them, however their files list them.
        members, told = dict(sorted(self.parties.members.items())), folder / "told.json"
        holders = [place for place, member in enumerate(members.values()) if member.rows]
        asked = {
            "said": dict(self.said),
            "holders": holders,
            "listens_on": members[self.name].address.rpartition(":")[0],
            "numbers": None if numbers is None else str(numbers),
            "sums": str(folder / "sums.npy"),
            "told": str(told),
        }
        command = [sys.executable, "-m", secure_sum.__name__, "--no-log", f"-I{list(members).index(self.name)}"]
        for member in members.values():
            command += ["-P", member.address]
        try:
            done = subprocess.run(
                processes.ending_with_this(command), input=json.dumps(asked), text=True, timeout=self.parties.wait_seconds,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, cwd=folder,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            waited = f"{self.parties.wait_seconds} seconds"
            raise RunFailed(f"not all parties came, or one left, within {waited}; {NOBODY}; {after}") from None
        if done.returncode or not told.is_file():
            raise RunFailed(
                f"the parties could not add their tables: one left, or its port is taken; {NOBODY}; {after}"
            )
        differs: list[str] = json.loads(told.read_text())
        return differs


def refuse_unready() -> None:
    """Refuse where MPyC is not installed.

    Raises:
        RequestError: it is not.
    """
    if importlib.util.find_spec("mpyc") is None:
        message, hint = "need the package mpyc", "pip install 'dp-pipelines[parties]'"
        raise RequestError(field="parties", message=message, hint=hint)
