"""A mapping that cannot change: queries and plans are fixed before any data is read."""

from collections.abc import Iterator, Mapping
from typing import TypeVar

Value = TypeVar("Value")


class FrozenMapping(Mapping[str, Value]):
    """An immutable, hashable and picklable mapping from names, which keeps their order.

    As for every mapping of Python, the order makes no difference to whether two of them are equal.

    >>> FrozenMapping({"a": 1})["a"]
    1
    """

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, Value]) -> None:
        self._items = dict(items)

    def __getitem__(self, key: str) -> Value:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        return repr(self._items)
