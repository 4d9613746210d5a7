"""Optimised local hashing: each device hashes the values into a few buckets, and answers at random for the bucket.

In: an index. Out: the hash (two numbers) and a bucket. Holds: docs/proofs/local.md, "Local hashing". Not covered: a
server that tests a million values for each report is slow; Hadamard response is not.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

from dp_pipelines.collect.coins import Coins
from dp_pipelines.collect.d_ary import DAry
from dp_pipelines.collect.randomizer import Randomizer
from dp_pipelines.errors import RequestError

HASH_BITS = 32
"""Bits of the hash's arithmetic: what a device multiplies without long numbers."""


@dataclass(frozen=True)
class LocalHashing(Randomizer):
    """The bucket of value v is the upper bits of (a v + b) modulo 2^hash_bits, for random a and b that the report names.

    Any two values fall into each pair of buckets equally often (strong universality), so a value that is not the true one is
    supported by exactly one report in `buckets`. Buckets are a power of two, the one nearest to e^epsilon + 1 by the variance
    that it causes.

    Source: Wang, Blocki, Li, Jha, USENIX Security 2017 (optimized local hashing); Dietzfelbinger, STACS 1996, theorem 3, and
    Thorup, "High speed hashing for integers and strings", 2015, section 3.3 (the hash: hash_bits must be at least the bits of a
    value and of a bucket together, less one).

    >>> from decimal import Decimal
    >>> LocalHashing(Decimal(1), size=1000).buckets
    4
    """

    hash_bits: int = HASH_BITS

    name: ClassVar[str] = "local_hashing"

    @property
    def fields(self) -> tuple[str, ...]:
        return ("a", "b", "bucket")

    def __post_init__(self) -> None:
        if self.value_bits + self.bucket_bits - 1 > self.hash_bits:
            raise RequestError(
                field="values",
                message=f"are more than {2 ** (self.hash_bits + 1 - self.bucket_bits)}, beyond which this hash is not fair",
                hint="take mechanism: hadamard",
            )
        super().__post_init__()

    @cached_property
    def value_bits(self) -> int:
        """Bits of an index."""
        return (self.size - 1).bit_length()

    @cached_property
    def bucket_bits(self) -> int:
        """Bits of a bucket."""
        exp = self.exp_epsilon
        return min(range(1, 20), key=lambda bits: (exp + 2**bits - 1) ** 2 / (2**bits - 1))

    @cached_property
    def buckets(self) -> int:
        """How many buckets there are."""
        return 1 << self.bucket_bits

    @cached_property
    def response(self) -> DAry:
        """How the bucket is answered."""
        return DAry(self.epsilon, self.buckets, self.bits)

    def chances_left(self) -> int:
        return self.response.chances_left()

    def ratio(self) -> Fraction:
        return self.response.ratio()

    def parameters(self) -> dict[str, int]:
        return {"hash_bits": self.hash_bits, "bucket_bits": self.bucket_bits, "other": self.response.other}

    def bucket(self, a: int, b: int, index: int) -> int:
        """The bucket of a value under the hash (a, b)."""
        return ((a * index + b) & ((1 << self.hash_bits) - 1)) >> (self.hash_bits - self.bucket_bits)

    def respond(self, index: int, coins: Coins) -> tuple[int, ...]:
        a, b = coins.draw(self.hash_bits), coins.draw(self.hash_bits)
        return (a, b, *self.response.respond(self.bucket(a, b, index), coins))
