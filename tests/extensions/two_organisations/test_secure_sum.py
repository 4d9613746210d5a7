"""What travels between parties is texts and numbers: a party that sends anything else runs nothing at the others."""

import asyncio
import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.extensions.two_organisations import secure_sum
from dp_pipelines.extensions.two_organisations.secure_sum import PRIME, Wire
from tests.extensions.two_organisations.worlds import World, free_ports, job

HOSTILE = """
import sys
from mpyc.runtime import mpc

class Payload:
    def __reduce__(self):
        return (exec, ("import os; print(os.getpid(), file=open({marker!r}, 'a'))",))

async def main():
    async with mpc:
        await mpc.transfer(Payload())

mpc.run(main())
"""


@given(st.text(), st.lists(st.integers(0, PRIME - 1)))
def test_texts_and_field_elements_arrive_as_they_were_sent(text: str, numbers: list[int]) -> None:
    assert Wire.loads(Wire.dumps(text)) == text
    assert Wire.loads(Wire.dumps(2)) == 2
    assert Wire.loads(Wire.dumps(np.array(numbers, dtype=object))).tolist() == numbers


@given(st.binary())
def test_bytes_of_a_stranger_are_a_text_numbers_of_the_field_or_a_value_error(content: bytes) -> None:
    try:
        found = Wire.loads(content)
    except ValueError:
        return
    assert isinstance(found, str | int) or all(type(each) is int and 0 <= each < PRIME for each in found)


def test_what_differs_is_told_in_own_words_alone() -> None:
    """What others send is theirs to choose: it is not shown on this party's terminal."""

    class Told:
        async def transfer(self, own: str) -> list[str]:
            return [own, json.dumps({"plans": "2", "\x1b[2J nothing was charged": ""}), json.dumps(["no", "names"])]

    said = {"job files": "0", "plans": "1"}
    assert asyncio.run(secure_sum._meet(Told(), said)) == ["job files", "plans"]


@pytest.mark.parametrize(
    ("ledgers", "found"), [("abc", []), ("aab", ["ledgers"]), ("aba", ["ledgers"]), ("baa", ["ledgers"])]
)
def test_all_parties_find_it_alike_where_two_have_one_ledger(ledgers: str, found: list[str]) -> None:
    class Told:
        async def transfer(self, own: str) -> list[str]:
            return [json.dumps({"plans": "1", "ledgers": each}) for each in ledgers]

    assert asyncio.run(secure_sum._meet(Told(), {"plans": "1", "ledgers": ledgers[0]})) == found


@pytest.mark.slow
def test_a_party_that_sends_a_pickle_runs_no_code_at_the_others(tmp_path: pathlib.Path) -> None:
    ports, marker = free_ports(3), tmp_path / "marker"
    said = job(ports)
    said["parties"]["wait_seconds"] = 20
    world = World.made(tmp_path / "world", said)
    others = [world.start(party, "--run-id", "r") for party in ("south", "notary")]
    command = [sys.executable, "-c", HOSTILE.format(marker=str(marker)), "--no-log", "-I0"]
    for port in ports:
        command += ["-P", f"127.0.0.1:{port}"]
    hostile = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        told = [process.communicate(timeout=120) for process in others]
    finally:
        hostile.kill()
        hostile.wait()
    assert [process.returncode for process in others] == [1, 1]
    assert all("nothing was published; nothing was charged or read" in error for _, error in told), json.dumps(told)
    # At most the hostile party has read its own pickle.
    assert not marker.exists() or set(marker.read_text().split()) == {str(hostile.pid)}
