"""Functions for blocks: sound ones and all kinds of bad ones. They run in child processes, which import them from here."""

import logging
import os
import subprocess
import sys
import time
import warnings
import zlib

import pyarrow as pa
import pyarrow.compute as pc

ASLEEP = ["/bin/sleep", f"1000.{zlib.crc32(__file__.encode())}"]
"""A command that no other checkout on this machine runs."""


def mean(rows: pa.Table) -> float:
    """The mean of x."""
    return pc.mean(rows["x"]).as_py()


def first(rows: pa.Table) -> float:
    """A function that depends on the order of its rows."""
    return rows["x"][0].as_py()


def loud(rows: pa.Table) -> float:
    """Says the rows in every way that it can."""
    for text in rows["x"].to_pylist():
        print("SECRET", text)
        print("SECRET", text, file=sys.stderr)
        logging.getLogger().error("SECRET %s", text)
        warnings.warn(f"SECRET {text}", stacklevel=1)
    os.write(1, b"SECRET")
    os.write(2, b"SECRET")
    subprocess.run(["/bin/sh", "-c", "echo SECRET; echo SECRET >&2"], check=False)
    return 0.25


def raising(rows: pa.Table) -> float:
    """Fails, with a row in its message."""
    raise ValueError(f"SECRET {rows['x'][0]}")


def leaving(rows: pa.Table) -> float:
    """Leaves without a word."""
    os._exit(3)


def killed(rows: pa.Table) -> float:
    """Is killed by a signal."""
    os.kill(os.getpid(), 9)
    return 0.0


def sleeping(rows: pa.Table) -> float:
    """Never ends, and starts something else that never ends."""
    subprocess.Popen(ASLEEP)
    time.sleep(1000)
    return 0.0


def busy(rows: pa.Table) -> float:
    """Uses the processor for ever."""
    while True:
        pass


def hungry(rows: pa.Table) -> float:
    """Takes more memory than there is."""
    return float(len(bytearray(1 << 40)))


def text(rows: pa.Table) -> str:
    """Gives no number."""
    return "SECRET"


def nothing(rows: pa.Table) -> None:
    """Gives nothing."""


def not_a_number(rows: pa.Table) -> float:
    """Gives NaN."""
    return float("nan")


def endless(rows: pa.Table) -> float:
    """Gives infinity."""
    return float("inf")


def huge(rows: pa.Table) -> int:
    """Gives a number beyond any float."""
    return 10**400


def far(rows: pa.Table) -> float:
    """Gives a number far outside of the range."""
    return -1e30


def whole(rows: pa.Table) -> int:
    """Gives a whole number."""
    return 1


def rows_without_end(rows: pa.Table) -> float:
    """Writes into every pipe that it finds: a process that has run many tests has high numbers."""
    for descriptor in range(3, 2**16):
        try:
            os.set_blocking(descriptor, False)
            os.write(descriptor, b"SECRET" * 100_000)
        except OSError:
            pass
    return 0.5
