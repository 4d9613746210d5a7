"""Numbers of shards and places: what they keep small, and within which bounds."""

from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.kernels import sizes

inputs, slots = st.integers(0, 2**60), st.integers(1, 5000)


@given(inputs, slots)
def test_there_are_some_shards_and_places_and_never_more_than_the_kernels_take(size: int, slots: int) -> None:
    shards = sizes.shards(size, slots)
    assert 1 <= shards <= sizes.MOST_SHARDS
    assert sizes.LEAST_PLACES <= sizes.places(shards) <= sizes.MOST_PLACES


@given(st.integers(0, sizes.MOST_SHARDS * sizes.GROUP_BYTES), slots)
def test_a_shard_comes_to_no_more_than_a_group_until_there_are_most_shards(size: int, slots: int) -> None:
    assert size / sizes.shards(size, slots) <= sizes.GROUP_BYTES


@given(inputs, st.integers(2, sizes.MOST_SHARDS // sizes.SHARDS_OF_A_SLOT))
def test_every_slot_has_several_shards(size: int, slots: int) -> None:
    assert sizes.shards(size, slots) >= sizes.SHARDS_OF_A_SLOT * slots


@given(inputs, slots)
def test_every_slot_has_as_many_shards_as_the_others_until_there_are_most_shards(size: int, slots: int) -> None:
    shards = sizes.shards(size, slots)
    assert shards == sizes.MOST_SHARDS or shards % slots == 0


@given(inputs, inputs, slots, slots)
def test_more_bytes_or_more_slots_never_mean_fewer_shards_beyond_the_last_round(
    one: int, more: int, slots: int, others: int
) -> None:
    fewer = sizes.shards(min(one, more), min(slots, others))
    assert fewer < sizes.shards(max(one, more), max(slots, others)) + min(slots, others)
    assert sizes.shards(min(one, more), slots) <= sizes.shards(max(one, more), slots)


@given(st.integers(1, sizes.MOST_SHARDS))
def test_pieces_of_a_batch_are_large_enough_for_their_heads(shards: int) -> None:
    enough = sizes.gathered_bytes(shards)
    assert enough <= sizes.MOST_GATHERED
    assert enough == sizes.MOST_GATHERED or enough >= shards * sizes.LEAST_PIECE


@given(st.integers(1, sizes.MOST_SHARDS), st.integers(1, 5000))
def test_what_is_gathered_of_wide_rows_takes_less_than_a_shard_that_is_bounded(shards: int, columns: int) -> None:
    enough = sizes.gathered_columns_bytes(shards, columns)
    assert enough >= sizes.gathered_bytes(shards)
    at_once = (sizes.AT_WORK + sizes.WAITING) * sizes.COPIES_OF_A_BATCH * enough
    bounded = (sizes.AT_WORK * sizes.COPIES_OF_A_GROUP + sizes.WAITING) * sizes.GROUP_BYTES
    assert at_once <= bounded or enough == sizes.gathered_bytes(shards)
    assert min(enough, sizes.MOST_WIDE) >= min(shards * columns * sizes.LEAST_COLUMN, sizes.MOST_WIDE)


@given(inputs, st.integers(1, 64))
def test_what_a_worker_holds_has_a_bound_until_there_are_most_shards(size: int, slots: int) -> None:
    bound = sizes.worker_bytes(min(size, sizes.MOST_SHARDS * sizes.GROUP_BYTES), slots=slots)
    assert bound <= sizes.WORKER_BYTES + slots * sizes.worker_bytes(sizes.MOST_SHARDS * sizes.GROUP_BYTES, slots=1)
