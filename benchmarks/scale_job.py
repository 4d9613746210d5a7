"""`dp-pipelines run` with a watch: the command itself, in this process, which also says how long its pipelines took.

In: a path, and the arguments of `dp-pipelines`. Out: the command's output; and JSON in that file: seconds of all pipelines, from
handing one to the runner until it is done, and the bytes of Arrow tables that were written for another step in this process.
Holds: nothing of the command is changed but for the two that count.
"""

import json
import pathlib
import sys
import threading
import time
from typing import Any

from dp_pipelines.jobs.cli import main as cli
from dp_pipelines.jobs.runners import beam_engine
from dp_pipelines.transforms.coder import ArrowTableCoder


def main() -> int:
    """Run, then tell."""
    seconds, elements, lock = [0.0], [0, 0, 0], threading.Lock()
    run, encode = beam_engine.BeamEngine.run, ArrowTableCoder.encode

    def timed(self: beam_engine.BeamEngine, *given: Any) -> None:
        begin = time.perf_counter()
        try:
            run(self, *given)
        finally:
            seconds[0] += time.perf_counter() - begin

    def counted(self: ArrowTableCoder, value: Any) -> bytes:
        made = encode(self, value)
        with lock:
            elements[:] = elements[0] + 1, elements[1] + len(made), max(elements[2], len(made))
        return made

    beam_engine.BeamEngine.run, ArrowTableCoder.encode = timed, counted  # type: ignore[method-assign]
    code = cli.main(sys.argv[2:])
    told = dict(zip(("elements", "encoded_bytes", "largest_element"), elements, strict=True))
    pathlib.Path(sys.argv[1]).write_text(json.dumps({"pipeline_seconds": seconds[0], **told}))
    return code


if __name__ == "__main__":
    sys.exit(main())
