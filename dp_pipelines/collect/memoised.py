"""One permanent answer for each value, for questions that are asked again and again.

In: a question and a private file on the device. Out: the same report whenever the value is the same. Holds: over all days the
answers to this question cost at most `most_values` times epsilon. Not covered: a report that stays the same is a name: who sees
the stream of one device can link its days.
"""

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dp_pipelines import checks
from dp_pipelines.collect.question import Question
from dp_pipelines.errors import RequestError


@dataclass(frozen=True)
class Memoised:
    """A question with a memory.

    A device whose value has changed more than `most_values` - 1 times reports for the value of its first answer from then on.

    Args:
        question: the question.
        file: where the device keeps its answers, readable by its owner alone. It holds true values' places: it never leaves the
            device.
        most_values: of how many distinct values answers are kept: 1 to 100. The guarantee over all days is this times epsilon.

    Source: Erlingsson, Pihur, Korolova, CCS 2014 (permanent randomized response).

    >>> import tempfile
    >>> from dp_pipelines.collect.domain import Choices
    >>> question = Question("lives", Choices(("north", "south")), epsilon=1)
    >>> device = Memoised(question, Path(tempfile.mkdtemp()) / "answers.json")
    >>> first = device.report("north")
    >>> all(device.report(value) == first for value in ("north", "north", "south"))
    True
    """

    question: Question
    file: Path
    most_values: int = 1

    def __post_init__(self) -> None:
        checks.whole(self.most_values, "most_values", low=1, high=100)
        object.__setattr__(self, "file", Path(self.file))

    def report(self, value: Any) -> dict[str, Any]:
        """The permanent answer for a value; a fresh one is drawn and kept the first time.

        Raises:
            RequestError: the value is outside the domain, or the file belongs to another question.
        """
        index = str(self.question.domain.index_of(value))
        kept = self._kept()
        if index not in kept and len(kept) < self.most_values:
            kept = {**kept, index: self.question.report(value)["report"]}
            # Before anybody hears it: an answer that is told and forgotten would be drawn again.
            self._keep(kept)
        return {"question": self.question.name, "report": kept.get(index, next(iter(kept.values())))}

    @property
    def _digest(self) -> str:
        return hashlib.sha256(self.question.to_json().encode()).hexdigest()

    def _kept(self) -> Mapping[str, Any]:
        try:
            found = json.loads(self.file.read_text())
        except FileNotFoundError:
            return {}
        except ValueError:
            found = None
        if not isinstance(found, dict) or found.get("question") != self._digest:
            raise RequestError(
                field=str(self.file),
                message="does not hold answers to this question as it stands",
                hint="keep one file for each question; a new epsilon or list of values is a new question, and costs anew",
            )
        answers: Mapping[str, Any] = found["answers"]
        return answers

    def _keep(self, answers: Mapping[str, Any]) -> None:
        # Of mode 0600, with O_EXCL and O_NOFOLLOW: in a shared folder nobody can have put a file or a link of that name there.
        descriptor, written = tempfile.mkstemp(dir=self.file.parent, prefix=".answers-", suffix=".new")
        try:
            with os.fdopen(descriptor, "w") as stream:
                json.dump({"question": self._digest, "answers": answers}, stream)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(written, self.file)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(written)
        if os.name == "posix":  # or a power cut brings back the name's old file, and the answer is drawn again
            folder = os.open(self.file.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
