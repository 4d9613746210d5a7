"""One party of a sum under secret sharing: a process of its own, which opens sums and nothing else.

In: on standard input who takes part, what must be the same for all, and this party's numbers in a file; the options of MPyC
as arguments. Out: a file with the sums, or with the names of what differs. Holds: numbers leave this process as Shamir shares, of
which one alone says nothing; what comes in is read as texts and numbers, never as code; nothing is printed. Not covered: parties
that do not follow the protocol, as far as the sums go; who hears two links.
"""

import asyncio
import functools
import json
import pathlib
import sys
from typing import Any

import numpy as np

from dp_pipelines.kernels.lattice import Integers

PRIME = 2**61 - 1
"""The field: sums of some hundred numbers below 2**53 stay inside of (-PRIME / 2, PRIME / 2)."""

PORTION = 2**16
"""Numbers that are shared at a time."""

LOOPBACK = ("127.0.0.1", "localhost")

LEDGER = "ledgers"
"""What no two parties may say the same of."""


class Wire:
    """How texts and numbers travel, in place of the pickles that MPyC uses: whoever reads a pickle runs what its sender likes.

    >>> Wire.loads(Wire.dumps("digest")), Wire.loads(Wire.dumps(np.array([1, PRIME - 1], dtype=object))).tolist()
    ('digest', [1, 2305843009213693950])
    """

    @staticmethod
    def dumps(given: Any) -> bytes:
        """A text, one number (MPyC says goodbye with its place), or field elements in a row, as bytes."""
        if isinstance(given, str):
            return b"t" + given.encode()
        if isinstance(given, int):
            return b"i" + given.to_bytes(8, "little")
        return b"n" + np.array([int(number) % PRIME for number in given], dtype="<u8").tobytes()

    @staticmethod
    def loads(content: bytes) -> Any:
        """What `dumps` was given.

        Raises:
            ValueError: it is something else.
        """
        if content[:1] == b"t":
            return content[1:].decode()
        if content[:1] == b"i":
            return int.from_bytes(content[1:9], "little")
        if content[:1] != b"n":
            raise ValueError("neither a text nor numbers")
        return (np.frombuffer(content[1:], dtype="<u8") % PRIME).astype(object)


async def _meet(mpc: Any, said: dict[str, str]) -> list[str]:
    """The names of what is not as it must be: all that parties tell each other in the clear. It is found alike by all of them."""
    told = await mpc.transfer(json.dumps(said, sort_keys=True))
    others = [json.loads(each) for each in told]
    # Own names alone: what others call something is theirs to choose, and is not shown.
    found = []
    for name in said:
        different = {json.dumps(each.get(name) if isinstance(each, dict) else None) for each in others}
        if len(different) != (len(others) if name == LEDGER else 1):
            found.append(name)
    return found


async def _sums(mpc: Any, numbers: Integers, holders: list[int]) -> Integers:
    """The sums of the numbers of those who have rows."""
    field = mpc.SecFld(PRIME)
    found = np.empty(len(numbers), np.int64)
    for begin in range(0, len(numbers), PORTION):
        mine = field.array(numbers[begin : begin + PORTION].astype(object) % PRIME)
        shared = mpc.input(mine, senders=holders)
        opened = await mpc.output(functools.reduce(lambda one, other: one + other, shared))
        values = np.array([int(value) for value in opened], dtype=object)
        found[begin : begin + PORTION] = np.where(values > PRIME // 2, values - PRIME, values)
    return found


async def take_part(mpc: Any, asked: dict[str, Any]) -> None:
    """Meet the others and, where all say the same, add.

    Args:
        mpc: MPyC's runtime.
        asked: what `extensions.two_organisations.meeting` writes.
    """
    if asked["listens_on"] in LOOPBACK:  # else MPyC would listen to the whole network
        loop = mpc._loop
        loop.create_server = functools.partial(loop.create_server, host="127.0.0.1")
    async with mpc:
        differs = await _meet(mpc, asked["said"])
        if differs or asked["numbers"] is None:
            pathlib.Path(asked["told"]).write_text(json.dumps(differs))
            return
        sums = await _sums(mpc, np.load(asked["numbers"]), asked["holders"])
        np.save(asked["sums"], sums)
        pathlib.Path(asked["told"]).write_text("[]")


def main() -> None:
    """Take part once."""
    asked = json.loads(sys.stdin.read())
    from mpyc import runtime  # takes its options from the command line

    runtime.pickle = Wire  # it names this module wherever it writes or reads what travels
    mpc = runtime.mpc
    asyncio.set_event_loop(mpc._loop)
    mpc.run(take_part(mpc, asked))


if __name__ == "__main__":
    main()
