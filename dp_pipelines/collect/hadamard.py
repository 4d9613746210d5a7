"""Hadamard response: a short report, chosen from the half of a block of codes that belongs to the true value.

In: an index. Out: a code. Holds: docs/proofs/local.md, "Hadamard response". Not covered: few values, which the others tell
better.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

from dp_pipelines.collect.coins import Coins
from dp_pipelines.collect.randomizer import Randomizer


@dataclass(frozen=True)
class HadamardResponse(Randomizer):
    """The first outcomes of the coin name each code equally often, all others a code of the true value.

    Codes lie in `blocks` blocks of `block_size`. A value is a block and a row of the Hadamard matrix in it, and its codes are
    those where the row is +1.
    Any two values share a quarter of a block or none, so a value is estimated from the signs of its own row. The number of blocks
    is the power of two with the least variance, about (e^epsilon - 1) / 2.

    Source: Acharya, Sun, Zhang, AISTATS 2019 (Hadamard response); their rule for the number of blocks, about e^epsilon, has a
    larger constant.

    >>> from decimal import Decimal
    >>> response = HadamardResponse(Decimal(4), size=1000)
    >>> response.blocks, response.block_size
    (32, 64)
    """

    name: ClassVar[str] = "hadamard"

    @property
    def fields(self) -> tuple[str, ...]:
        return ("code",)

    @cached_property
    def blocks(self) -> int:
        """A power of two: how many blocks there are."""
        exp = self.exp_epsilon
        return min(
            (1 << bits for bits in range(18) if 1 << bits <= self.size), key=lambda n: (exp + 2 * n - 1) ** 2 / n
        )

    @cached_property
    def block_size(self) -> int:
        """A power of two: codes of a block. The first row of a block, which is +1 everywhere, stands for no value."""
        rows = -(-self.size // self.blocks) + 1
        return 1 << (rows - 1).bit_length()

    @cached_property
    def codes(self) -> int:
        """How many codes there are."""
        return self.blocks * self.block_size

    @cached_property
    def any_code(self) -> int:
        """Outcomes of the coin that name one certain code, whatever the value."""
        half = self.block_size // 2
        return self.weight_for(half * self.exp_epsilon + self.codes - half)

    @cached_property
    def own_code(self) -> int:
        """Further outcomes that name one certain code of the true value. Whole, since sizes of blocks are powers of two."""
        return self.chances_left() // (self.block_size // 2)

    def chances_left(self) -> int:
        return self.coins - self.codes * self.any_code

    def ratio(self) -> Fraction:
        return Fraction(self.any_code + self.own_code, self.any_code)

    def parameters(self) -> dict[str, int]:
        return {
            "block_size": self.block_size,
            "codes": self.codes,
            "any_code": self.any_code,
            "own_code": self.own_code,
        }

    def row(self, index: int) -> tuple[int, int]:
        """The block of a value, and its row in it, from 1."""
        block, row = divmod(index, self.block_size - 1)
        return block, row + 1

    def respond(self, index: int, coins: Coins) -> tuple[int, ...]:
        coin = coins.draw(self.bits)
        shared = self.codes * self.any_code
        if coin < shared:
            return (coin // self.any_code,)
        block, row = self.row(index)
        return (block * self.block_size + nth_of_row((coin - shared) // self.own_code, row),)


def nth_of_row(n: int, row: int) -> int:
    """The nth column in which a row of the Hadamard matrix is +1: those that share an even number of bits with it.

    >>> [nth_of_row(n, 3) for n in range(4)]
    [0, 3, 4, 7]
    """
    lowest = (row & -row).bit_length() - 1
    column = n >> lowest << (lowest + 1) | (n & ((1 << lowest) - 1))
    odd = (column & row).bit_count() & 1
    return column | odd << lowest
