"""The order of what a job file lists: where it means nothing, two jobs that differ in it alone are one job.

In: the dump of a job's model. Out: the same with one order for each such list. Holds: every list of the JSON schema is in one of
the two tables here (tests/jobs/request/test_list_order.py). Not covered: mappings, whose keys every digest sorts.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

from dp_pipelines.query import feature_pairs

Keys = tuple[str, ...]
"""Keys of a job file from the outside in; "*" for each name, each entry of a list, or the whole where no list is written."""


def _by_text(listed: list[Any]) -> list[Any]:
    return sorted(listed, key=json.dumps)


_TABLES: tuple[Keys, ...] = ((), ("tables", "*"))
_LOOKUPS: tuple[Keys, ...] = tuple((*of, "lookup", *each) for of in _TABLES for each in ((), ("*",)))
_CSV: tuple[Keys, ...] = (("source",), ("tables", "*"), *_LOOKUPS, ("stages", "*", "public"))

WITHOUT_ORDER: dict[Keys, Callable[[Any], Any]] = {
    ("stages", "*", "partitions", "public"): _by_text,
    ("stages", "*", "partitions", "public", "product", "*"): _by_text,
    ("stages", "*", "pairs"): feature_pairs.in_order,
    ("outputs", "files"): _by_text,
    **{(*of, "nulls"): _by_text for of in _CSV},
    **{(*of, "on"): _by_text for of in _LOOKUPS},
    **{(*of, "optional"): _by_text for of in (("source",), ("tables", "*"))},
}
"""Lists whose order means nothing, and the one order that digests give them: that of plans where these have one too."""

WITH_ORDER: dict[Keys, str] = {
    ("privacy_unit",): "hashes of units take the columns in this order",
    ("privacy_unit", "*"): "the same",
    ("union",): "the columns of the rows are those of the first table, in its order",
    ("join", "on"): "hashes of joined rows take the columns in this order",
    ("join", "on", "*"): "the left table's column comes first",
    ("tuned",): "runs of `tune`, in the order in which they were made",
    ("lookup",): "a lookup may name columns of those before it",
    ("tables", "*", "lookup"): "the same",
    **{(*of, "names"): "the columns of a file, from left to right" for of in _CSV},
    **{
        (*of, *key): "the first form that fits a cell counts"
        for of in _CSV
        for key in (("date_format",), ("timestamp_format",), ("formats", "*"))
    },
    ("expect", "totals", "*"): "a smallest and a largest value",
    ("stages", "*", "partition_by"): "published columns have this order",
    ("stages", "*", "order_by"): "the first one decides first",
    ("stages", "*", "partitions", "public", "*"): "the parts of a key, as in partition_by",
    ("stages", "*", "partitions", "public", "product", "*", "range"): "the first and the last value",
    ("stages", "*", "rollup"): "levels are published in this order",
    ("stages", "*", "rollup", "levels"): "the same",
    ("stages", "*", "rollup", "*"): "the columns of a level, as in partition_by",
    ("stages", "*", "rollup", "levels", "*"): "the same",
    ("stages", "*", "rollup", "shares"): "one for each level",
    ("stages", "*", "compare", "metrics"): "published columns have this order",
    ("stages", "*", "bounds", "partition_candidates"): "they must rise",
    ("stages", "*", "bounds", "row_candidates"): "they must rise",
    ("stages", "*", "metrics", "*", "within"): "a lowest and a highest value",
    ("stages", "*", "metrics", "*", "edges"): "they must rise",
    ("stages", "*", "metrics", "*", "categories"): "the published list has this order",
    ("stages", "*", "metrics", "*", "quantiles"): "the same",
    ("stages", "*", "metrics", "*", "candidates"): "they must rise",
    ("stages", "*", "metrics", "*", "columns"): "published matrices have this order",
    ("stages", "*", "metrics", "*", "bounds", "*"): "a lowest and a highest value",
    ("stages", "*", "features", "*", "categories"): "columns of the model have this order",
    ("stages", "*", "features", "*", "edges"): "they must rise",
    ("stages", "*", "label", "classes"): "scores of the model have this order",
    ("stages", "*", "fit", "candidates"): "they are published in this order",
    ("stages", "*", "fit", "class_weights"): "one for each class",
    ("stages", "*", "model", "hidden"): "layers from the first to the last",
    ("stages", "*", "columns"): "the parts of a report, from the first to the last",
    ("stages", "*", "by_columns"): "the same",
    ("stages", "*", "evaluation", "by", "groups"): "they are published in this order",
}
"""Lists whose order means something, and what."""


def without_order(job: dict[str, Any]) -> dict[str, Any]:
    """Return a job with the lists of `WITHOUT_ORDER` in one order; digests sort the keys of mappings.

    Args:
        job: the dump of a job's model; it is changed.

    >>> without_order({"stages": {"a": {"pairs": [["weight", "product"], ["store", "product"]]}}})
    {'stages': {'a': {'pairs': [('product', 'store'), ('product', 'weight')]}}}
    """
    for path, ordered in WITHOUT_ORDER.items():
        for holder in _holders(job, path[:-1]):
            for key in list(holder) if path[-1] == "*" else [path[-1]]:
                if isinstance(holder.get(key), list):
                    holder[key] = ordered(holder[key])
    return job


def _holders(content: Any, path: Keys) -> Iterator[dict[str, Any]]:
    """Yield the mappings at a place."""
    if not path:
        if isinstance(content, dict):
            yield content
    elif path[0] == "*":
        entries = content.values() if isinstance(content, dict) else content if isinstance(content, list) else ()
        for entry in entries:
            yield from _holders(entry, path[1:])
    elif isinstance(content, dict) and path[0] in content:
        yield from _holders(content[path[0]], path[1:])
