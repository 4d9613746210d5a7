"""The coins of local randomizers: uniform whole numbers of the operating system's generator.

In: how many bits. Out: a number. Holds: nothing is kept between calls, and there is no seed to set; randomizers take their coins
as an object, so that tests enumerate all of them. Not covered: a device with a broken generator.
"""

import os
from typing import Protocol


class Coins(Protocol):
    """Where a randomizer's chance comes from. Only tests have another one than `SystemCoins`.

    >>> coins: Coins = SystemCoins()
    >>> coins.draw(1) in (0, 1)
    True
    """

    def draw(self, bits: int) -> int:
        """A uniform whole number from 0 to 2^bits - 1, independent of all others."""
        ...


class SystemCoins:
    """Coins of the operating system.

    >>> 0 <= SystemCoins().draw(52) < 2**52
    True
    """

    def draw(self, bits: int) -> int:
        size = -(-bits // 8)
        return int.from_bytes(os.urandom(size), "little") >> (8 * size - bits)
