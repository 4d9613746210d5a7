"""How an encoded row is written in a few bytes: codes of features instead of columns of zeros and ones.

In: how many columns each feature has, which are public. Out: which byte and which code stand for which column. Holds:
every row of the encoder has exactly one sequence of codes, and back; a code depends on its own row alone. Not covered:
the columns of a feature (`features.encoder`), the file (`examples.coded`).
"""

# Several features share a byte where the product of their columns is at most 256, so that a step of training loads and
# adds half as often. A feature with more columns is cut into pieces of 255, each with one more code that says
# "in another piece".

import dataclasses
import functools
import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

CODES = 256
"""Different values of a byte."""

Codes = NDArray[np.uint8]
Steps = NDArray[np.int32]


@dataclasses.dataclass(frozen=True)
class Piece:
    """Consecutive columns, at most one of which is 1 in a row.

    Args:
        feature: the number of the feature.
        begin: its first column, counted from the feature's first.
        columns: how many.
        column: the first column, counted from the row's first.
        elsewhere: whether the 1 may be in another piece of the feature.
        byte: in which byte of a row its code stands.
        factor: what its code is multiplied by there.
    """

    feature: int
    begin: int
    columns: int
    column: int
    elsewhere: bool
    byte: int
    factor: int

    @property
    def codes(self) -> int:
        """How many codes it has."""
        return self.columns + self.elsewhere


@dataclasses.dataclass(frozen=True, kw_only=True)
class CodeLayout:
    """The bytes of a row.

    Args:
        hot: for each feature, and each pair of them, how many columns it has of which exactly one is 1.
        scaled: for each, whether a column with the scaled value follows them.

    >>> layout = CodeLayout(hot=(11, 11, 4, 300), scaled=(False, True, False, False))
    >>> [(piece.column, piece.columns, piece.byte, piece.factor) for piece in layout.pieces]
    [(1, 11, 0, 1), (12, 11, 0, 11), (24, 4, 1, 1), (28, 255, 2, 1), (283, 45, 3, 1)]
    >>> layout.width, layout.bytes, layout.scaled_columns.tolist()
    (328, 4, [23])
    """

    hot: tuple[int, ...]
    scaled: tuple[bool, ...]

    @functools.cached_property
    def width(self) -> int:
        """Columns of a row: the constant, then those of the features."""
        return 1 + sum(self.hot) + sum(self.scaled)

    @functools.cached_property
    def one_of(self) -> tuple[tuple[int, ...], ...]:
        """For each feature and pair the columns of which every row has exactly one.

        >>> CodeLayout(hot=(2, 3), scaled=(True, False)).one_of
        ((1, 2), (4, 5, 6))
        """
        ends = itertools.accumulate((hot + own for hot, own in zip(self.hot, self.scaled, strict=True)), initial=1)
        return tuple(tuple(range(begin, begin + hot)) for begin, hot in zip(ends, self.hot, strict=False))

    @functools.cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """All pieces, in the order of the columns."""
        found: list[Piece] = []
        column, byte, used = 1, -1, CODES
        for feature, (hot, scaled) in enumerate(zip(self.hot, self.scaled, strict=True)):
            most = hot if hot <= CODES else CODES - 1
            for begin in range(0, hot, most):
                columns, elsewhere = min(most, hot - begin), hot > CODES
                codes = columns + elsewhere
                if used * codes > CODES:
                    byte, used = byte + 1, 1
                found.append(Piece(feature, begin, columns, column + begin, elsewhere, byte, used))
                used *= codes
            column += hot + scaled
        return tuple(found)

    @functools.cached_property
    def bytes(self) -> int:
        """Bytes of a row."""
        return self.pieces[-1].byte + 1 if self.pieces else 0

    @functools.cached_property
    def scaled_columns(self) -> NDArray[np.int64]:
        """The columns of scaled values, ascending."""
        found, column = [], 1
        for hot, scaled in zip(self.hot, self.scaled, strict=True):
            column += hot + scaled
            if scaled:
                found.append(column - 1)
        return np.array(found, np.int64)

    @functools.cached_property
    def byte_of(self) -> NDArray[np.int64]:
        """The byte of each piece: (pieces,)."""
        return np.array([piece.byte for piece in self.pieces], np.int64)

    @functools.cached_property
    def columns_of(self) -> NDArray[np.int64]:
        """The column that each value of its byte stands for, by piece: (pieces, 256); `width` where there is none.

        >>> CodeLayout(hot=(2, 3), scaled=(False, False)).columns_of[:, :7].tolist()
        [[1, 2, 1, 2, 1, 2, 6], [3, 3, 4, 4, 5, 5, 6]]
        """
        found = np.full((len(self.pieces), CODES), self.width, np.int64)
        most = [0] * self.bytes
        for piece in self.pieces:
            most[piece.byte] = max(most[piece.byte], piece.factor * piece.codes)
        for place, piece in enumerate(self.pieces):
            values = np.arange(most[piece.byte])
            code = values // piece.factor % piece.codes
            found[place, : len(values)] = np.where(code < piece.columns, piece.column + code, self.width)
        return found

    def coded(self, places: Sequence[NDArray[np.int64]], rows: int) -> Codes:
        """The bytes of rows.

        Args:
            places: for each feature, which of its columns is 1 in each row.
            rows: how many.
        """
        codes = np.zeros((rows, self.bytes), np.uint8)
        for piece in self.pieces:
            code = places[piece.feature] - piece.begin
            if piece.elsewhere:
                code = np.where((code < 0) | (code >= piece.columns), piece.columns, code)
            codes[:, piece.byte] += (code * piece.factor).astype(np.uint8)
        return codes

    def tables(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """For each value of each byte, the sum of the numbers of its columns, added in their order.

        Args:
            numbers: (width, outputs).

        Returns:
            (bytes, 256, outputs).
        """
        padded = np.concatenate([numbers, np.zeros((1, numbers.shape[1]))])
        found = np.zeros((self.bytes, CODES, numbers.shape[1]))
        for place, piece in enumerate(self.pieces):
            found[piece.byte] += padded[self.columns_of[place]]
        return found

    def columns(self, sums: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sums by value of each byte, added up by column: the other way round than `tables`.

        Args:
            sums: (bytes, 256, outputs), so small that all of a byte add up below 2**63.

        Returns:
            (width, outputs), zero for the constant and for scaled values.
        """
        found = np.zeros((self.width + 1, sums.shape[2]), np.int64)
        for place, piece in enumerate(self.pieces):
            np.add.at(found, self.columns_of[place], sums[piece.byte])
        return found[: self.width]
