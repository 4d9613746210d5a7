"""Matches of the files that a run reads against the registered sources of accounts.

In: patterns of accounts, names of files. Out: whether a file belongs to a pattern. Holds: a link and its target count as one
file, also as `file://`; a parameter in a pattern matches any text. Not covered: copies of the same rows in other files, such as
hard links.
"""

import glob
import os
import re
from collections.abc import Iterable

_PARAMETER = re.compile(r"\{[A-Za-z][A-Za-z0-9_]*\}")
_PARTS = re.compile(_PARAMETER.pattern + r"|\*\*/?|\*|\?|\[(?:![^/]|[^!/])[^\]/]*\]|.", re.DOTALL)


def matching(pattern: str) -> list[str]:
    """Return the files that match a registered pattern now, with any text for its parameters."""
    return glob.glob(_PARAMETER.sub("*", pattern), recursive=True)


def absolute(pattern: str, folder: str) -> str:
    """Return a pattern in its registered form.

    It is absolute, and links in its fixed part are followed. A URL is unchanged. A folder matches everything in it.

    Args:
        pattern: as a job declares it.
        folder: from which a relative pattern starts.

    >>> absolute("gs://bucket/*.parquet", "/jobs")
    'gs://bucket/*.parquet'
    """
    pattern = without_scheme(pattern)
    if "://" in pattern:
        return pattern
    joined = os.path.abspath(os.path.join(folder, os.path.expanduser(pattern)))
    if os.path.isdir(joined):
        joined = os.path.join(glob.escape(joined), "**")
    fixed = re.split(r"[*?\[{]", joined, maxsplit=1)[0]
    parent = fixed if fixed == joined else os.path.dirname(fixed)
    return os.path.realpath(parent) + joined[len(parent) :]


def covering(pattern: str, files: Iterable[str]) -> str:
    """Return a pattern that matches files which were found by `pattern`, even if it names a folder by a parameter.

    Args:
        pattern: as `absolute` gives it.
        files: that were found.

    >>> covering("/data/{week}", ["/data/2026-W01/part-0.csv"])
    '/data/{week}/**'
    """
    listed, inside = list(files), f"{pattern}/**"
    is_folder = first_match(pattern, listed) is None and first_match(inside, listed) is not None
    return inside if is_folder else pattern


def behind_links(pattern: str, files: Iterable[str]) -> list[str]:
    """Return the targets of those files that are links and whose targets the pattern does not match.

    Args:
        pattern: as `absolute` returns it.
        files: that match it.

    >>> behind_links("/data/*.parquet", ["gs://bucket/a.parquet"])
    []
    """
    real = dict.fromkeys(os.path.realpath(without_scheme(file)) for file in files if "://" not in without_scheme(file))
    return [glob.escape(path) for path in real if first_match(pattern, [path]) is None]


def first_match(pattern: str, files: Iterable[str]) -> str | None:
    """Return a file that belongs to a pattern, or None.

    Args:
        pattern: as `absolute` returns it.
        files: absolute paths or URLs.

    >>> first_match("/data/{week}/*.parquet", ["/data/2026-W01/a.parquet"])
    '/data/2026-W01/a.parquet'
    >>> first_match("/data/*.parquet", ["/data/deeper/a.parquet"])
    """
    matches = re.compile("".join(_as_regex(part) for part in _PARTS.findall(pattern)), re.DOTALL).fullmatch
    for file in files:
        place = without_scheme(file)
        # A link may be in the part that varies: then the pattern fits the name, and not the link's target.
        names = (place,) if "://" in place else (os.path.realpath(place), os.path.abspath(place))
        if any(matches(name) for name in names):
            return file
    return None


def without_scheme(name: str) -> str:
    """Return the path in a `file://` name; other names unchanged."""
    return name[len("file://") :] if name.startswith("file:///") else name


def _as_regex(part: str) -> str:
    if part in ("**/", "**"):
        return r"(?:.*/)?" if part == "**/" else ".*"
    if part == "*" or (part.startswith("{") and len(part) > 1):
        return "[^/]*"
    if part == "?":
        return "[^/]"
    if part.startswith("[") and len(part) > 1:
        return _set(part)
    return re.escape(part)


def _set(part: str) -> str:
    """Convert a set of `glob` to a regular expression: each character is literal, even if it is special in one."""
    negated = part.startswith("[!")
    signs, stands, place = part[2 if negated else 1 : -1], "", 0
    while place < len(signs):
        is_range = signs[place + 1 : place + 2] == "-" and place + 2 < len(signs)
        first, last = signs[place], signs[place + 2 if is_range else place]
        if first <= last:  # a range that goes backwards matches nothing
            stands += f"{re.escape(first)}-{re.escape(last)}"
        place += 3 if is_range else 1
    if negated:
        return f"[^{stands}/]"
    return f"(?!/)[{stands}]" if stands else "(?!)"
