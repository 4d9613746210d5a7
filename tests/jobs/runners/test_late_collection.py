"""Cycles are collected late by a command, and as ever by everybody else."""

import gc
from collections.abc import Iterator

import pytest

from dp_pipelines.jobs.runners import late_collection


@pytest.fixture(autouse=True)
def collecting() -> Iterator[None]:
    assert gc.isenabled()
    gc.unfreeze()  # what pytest has collected
    yield
    late_collection.begin()
    gc.enable()
    gc.unfreeze()


def test_what_is_put_off_begins_again_and_what_was_loaded_is_not_looked_at() -> None:
    late_collection.put_off()
    assert not gc.isenabled()
    late_collection.begin()
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0


def test_nothing_changes_for_those_who_did_not_put_it_off() -> None:
    late_collection.begin()
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_whoever_collects_nothing_goes_on_so() -> None:
    gc.disable()
    late_collection.put_off()
    late_collection.begin()
    assert not gc.isenabled()
