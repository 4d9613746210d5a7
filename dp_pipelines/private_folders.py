"""Folders of this user alone: anchors, caches, memories of noise, releases that wait for their place.

In: a path. Out: the folder, and all that were missing above it, with mode 0700. Holds: nobody else can rename or replace what
is in a folder made here, whatever the umask says. Not covered: folders that were there before.
"""

import pathlib


def make(folder: pathlib.Path) -> None:
    """Make a folder and the missing ones above it, each for this user alone.

    `Path.mkdir(mode=0o700, parents=True)` gives this mode to the last folder only, and those above it what the umask leaves.

    Args:
        folder: it may exist; then nothing about it changes.

    Raises:
        OSError: it cannot be made, or is no folder.

    >>> import tempfile
    >>> top = pathlib.Path(tempfile.mkdtemp())
    >>> make(top / "state" / "anchors")
    >>> oct((top / "state").stat().st_mode & 0o777)
    '0o700'
    """
    for missing in reversed([above for above in folder.parents if not above.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
