"""The folder of this user's cache, and which of its files may be trusted.

In: the environment, paths. Out: a folder that may not exist; whether a path is this user's alone. Holds: what somebody else may
write is never read. Not covered: what is kept there.
"""

import os
import pathlib
import stat


def folder() -> pathlib.Path:
    """The folder of the cache, which may not exist."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return pathlib.Path(base) / "dp_pipelines"


def is_own(path: pathlib.Path) -> bool:
    """Whether a file or folder is there, is this user's, and no other user may write it."""
    try:
        found = path.stat()
    except OSError:
        return False
    return found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
