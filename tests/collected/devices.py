"""Many devices at once, for tests and benchmarks: the same answers as `Randomizer.respond` for the same coins, in arrays.

In: a question, the indices of people's values, a NumPy generator. Out: reports. Holds: test_devices compares them with the
client coin by coin. Not covered: use by anybody else: its generator has a seed.
"""

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.collect.d_ary import DAry
from dp_pipelines.collect.hadamard import HadamardResponse
from dp_pipelines.collect.local_hashing import LocalHashing
from dp_pipelines.collect.one_bit import OneBit
from dp_pipelines.collect.piecewise import Piecewise
from dp_pipelines.collect.randomizer import Randomizer
from dp_pipelines.collect.unary import UnaryEncoding

Array = NDArray[np.int64]


def coins_of(randomizer: Randomizer, people: int, chance: np.random.Generator) -> Array:
    """Coins for each person, in the order in which a device throws them: int64 of shape (people, throws)."""
    bits = {UnaryEncoding: [randomizer.bits] * randomizer.size}.get(type(randomizer), [randomizer.bits])
    if isinstance(randomizer, LocalHashing):
        bits = [randomizer.hash_bits, randomizer.hash_bits, randomizer.bits]
    return np.stack([chance.integers(0, 2**each, people) for each in bits], axis=1)


def reports_of(randomizer: Randomizer, indices: Array, coins: Array) -> Array:
    """What devices send: int64 of shape (people, fields)."""
    coin = coins[:, -1]
    if isinstance(randomizer, DAry):
        return _d_ary(randomizer, indices, coin)[:, None]
    if isinstance(randomizer, UnaryEncoding):
        ends = np.where(np.arange(randomizer.size) == indices[:, None], randomizer.coins // 2, randomizer.one)
        bits = np.packbits(coins < ends, axis=1, bitorder="little")
        words = len(randomizer.fields)
        padded = np.zeros((len(bits), 4 * words), dtype=np.uint8)
        padded[:, : bits.shape[1]] = bits
        return padded.view("<u4").astype(np.int64)
    if isinstance(randomizer, LocalHashing):
        a, b = coins[:, 0], coins[:, 1]
        mask, shift = (1 << randomizer.hash_bits) - 1, randomizer.hash_bits - randomizer.bucket_bits
        bucket = ((a * indices + b) & mask) >> shift
        return np.stack((a, b, _d_ary(randomizer.response, bucket, coin)), axis=1)
    if isinstance(randomizer, HadamardResponse):
        shared = randomizer.codes * randomizer.any_code
        block, row = np.divmod(indices, randomizer.block_size - 1)
        n, row = np.maximum(coin - shared, 0) // randomizer.own_code, row + 1
        lowest = row & -row
        column = (n // lowest * 2 * lowest) + n % lowest
        column += lowest * _odd(column & row)
        return np.where(coin < shared, coin // randomizer.any_code, block * randomizer.block_size + column)[:, None]
    if isinstance(randomizer, OneBit):
        return (coin < randomizer.lowest + indices * randomizer.step).astype(np.int64)[:, None]
    assert isinstance(randomizer, Piecewise)
    shared = randomizer.points * randomizer.any_point
    near = randomizer.shift * indices + (coin - shared) // randomizer.near_point
    return np.where(coin < shared, coin // randomizer.any_point, near)[:, None]


def _d_ary(randomizer: DAry, indices: Array, coin: Array) -> Array:
    return np.where(coin < randomizer.size * randomizer.other, coin // randomizer.other, indices)


def _odd(numbers: Array) -> Array:
    """Whether each number has an odd number of bits."""
    found = numbers.copy()
    for shift in (32, 16, 8, 4, 2, 1):
        found ^= found >> shift
    return found & 1
