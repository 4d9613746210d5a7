"""Statistics of real coins: bits that are not fair, alike or repeated, and words that come twice.

In: words of a generator, in the order in which they were drawn. Out: a description of each defect. Holds: for independent
uniform words each function errs with the probability that its docstring derives. Not covered: generators whose words hide a
period or a relation of many bits; no test of outputs can tell them from real chance.
"""

import math

import numpy as np
from numpy.typing import NDArray

FALSE_ALARM = 1e-13
"""Largest probability that `unfair_bits` reports anything about independent uniform words, at any size and width to 64 bits."""

BLOCK = 2**14
"""Words that are looked at together."""

PAIRED = 2**16
"""Words of which pairs of bits are looked at."""


def bits_of(words: NDArray[np.uint64], width: int) -> NDArray[np.float32]:
    """Return the bits of words as -1 and 1, of shape (words, width)."""
    shifts = np.arange(width, dtype=np.uint64)
    return (((words[:, None] >> shifts) & np.uint64(1)).astype(np.float32) * 2) - 1


def times_set(words: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return in how many words each of the 64 bits is set.

    >>> times_set(np.array([5, 4], dtype=np.uint64))[:3].tolist()
    [1, 0, 2]
    """
    octets = words.astype("<u8").view(np.uint8).reshape(-1, 8)
    counts: NDArray[np.int64] = np.unpackbits(octets, axis=1, bitorder="little").sum(axis=0, dtype=np.int64)
    return counts


def unfair_bits(words: NDArray[np.uint64], width: int) -> list[str]:
    """Describe bits that are set too often or too rarely, and pairs of bits that agree too often or too rarely.

    Pairs are two bits of one word, and a bit of one word with a bit of the next, among the first `PAIRED` words. Each figure is a
    sum of n independent fair signs: those of a bit; the products of two bits of one word; or those of a bit of one word with a
    bit of the next, of which each has a factor that no earlier product has. By Hoeffding's inequality a sum leaves +-t with
    probability at most 2 exp(-t^2 / (2 n)). There are w + w (w - 1) / 2 + w^2 figures, for w = 64 at most 6,176, so
    t = sqrt(2 n ln(2 * 6,176 / `FALSE_ALARM`)) makes a false alarm at most `FALSE_ALARM` in all.

    >>> unfair_bits(np.zeros(1000, dtype=np.uint64), 2)[:2]
    ['bit 0 is -1000 off', 'bit 1 is -1000 off']
    """
    blocks = [words[start : start + BLOCK] for start in range(0, len(words), BLOCK)]
    sums = 2 * sum(times_set(block)[:width] for block in blocks) - len(words)
    bound = math.sqrt(2 * len(words) * math.log(2 * 6176 / FALSE_ALARM))
    found = [f"bit {bit} is {total:.0f} off" for bit, total in enumerate(sums) if abs(total) > bound]
    signs = bits_of(words[:PAIRED], width)  # float32 holds sums of fewer than 2^24 signs exactly
    inside, across = signs.T @ signs, signs[:-1].T @ signs[1:]
    bound = math.sqrt(2 * len(signs) * math.log(2 * 6176 / FALSE_ALARM))
    found += [f"bits {i} and {j} are {inside[i, j]:.0f} alike" for i, j in np.argwhere(abs(inside) > bound) if i < j]
    return found + [
        f"bits {i}, {j} of the next are {across[i, j]:.0f} alike" for i, j in np.argwhere(abs(across) > bound)
    ]


def repeats(words: NDArray[np.uint64]) -> int:
    """Return how many words came before."""
    ordered = np.sort(words)  # `np.unique` looks words up in a hash table, which takes 20 times as long
    return int((ordered[1:] == ordered[:-1]).sum())


def most_repeats(number: int, width: int) -> int:
    """Return a number of repeats that `number` uniform words of `width` bits exceed with probability below 1e-10.

    Each repeat is a pair of a word and an earlier one that are alike. k + 1 given pairs with different later words are all alike
    with probability 2^(-width (k + 1)), and there are at most (number^2 / 2)^(k + 1) / (k + 1)! sets of such pairs. The product
    bounds the probability of more than k repeats.

    >>> most_repeats(2**20, 52), most_repeats(2**20, 64)
    (2, 1)
    """
    expected = number**2 / 2 / 2**width
    most = 0
    while expected ** (most + 1) / math.factorial(most + 1) > 1e-10:
        most += 1
    return most
