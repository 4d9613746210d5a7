"""The child process of one block: the user's function, with nothing to write to and fixed resources.

In: on standard input, the limits, the pickled function and the rows (Arrow IPC). Out: eight bytes (a double) on a
separate pipe, or nothing. Holds: before any of the user's code loads, standard input, output and error lead nowhere and
logging is off, so nothing that the function or its libraries print leaves the process. Not covered: a function that
leaks on purpose (it may open files and connections; it is the job owner's own code, and trusted); systems without
`resource`.

Started by `blocks.run`, never imported by a pipeline.
"""

import contextlib
import logging
import os
import pickle
import struct
import sys
import warnings

LENGTH = struct.Struct("<QQQ")
RESULT = struct.Struct("<d")


def silence() -> None:
    """Point standard output and error to nowhere, for this process and what it loads."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)
    logging.disable(logging.CRITICAL)
    logging.raiseExceptions = False
    warnings.simplefilter("ignore")
    sys.excepthook = lambda *_: None


def limit(memory: int, seconds: int) -> None:
    """Limit the address space and the processor time, and forbid core files, which would hold rows."""
    import resource

    for name, most in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(name, (most, most))


def main(result: int) -> None:
    """Read the task, run it, and write the number."""
    silence()
    memory, seconds, size = LENGTH.unpack(sys.stdin.buffer.read(LENGTH.size))
    limit(memory, seconds)
    function, rows = sys.stdin.buffer.read(size), sys.stdin.buffer.read()
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    import pyarrow as pa

    pa.set_cpu_count(1)
    loaded = pickle.loads(function)  # noqa: S301  the owner of the job wrote it
    # With no table at all, not even an empty one, we only try whether the function can be loaded.
    value = float(loaded(pa.ipc.open_stream(rows).read_all())) if rows else 0.0
    os.write(result, RESULT.pack(value))


if __name__ == "__main__":
    # No failure may be visible, not even as an exit code.
    with contextlib.suppress(BaseException):
        main(int(sys.argv[1]))
    os._exit(0)
