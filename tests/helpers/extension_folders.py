"""Marks for tests of the core that use an extension on their way: they are skipped where its folder was deleted.

In: names of extensions. Out: a mark. Holds: nothing of an extension is imported. Not covered: tests of an extension itself, which
stand in tests/extensions/<name> and are deleted with it; what else a test needs.
"""

import pytest

from dp_pipelines import extensions


def needs(*names: str) -> pytest.MarkDecorator:
    """Return a mark that skips a test where one of these extensions is not installed.

    Args:
        names: of folders in dp_pipelines/extensions.
    """
    missing = [name for name in names if not extensions.has_folder(name)]
    return pytest.mark.skipif(bool(missing), reason=f"needs the extension {', '.join(missing)}")


def is_of_deleted(place: str) -> bool:
    """Return True if a place in the source is in the folder of an extension that is not installed.

    Args:
        place: a path or the name of a module, with or without what is in it.
    """
    name, below, _ = place.replace(".py", "").replace(".", "/").partition("dp_pipelines/extensions/")[2].partition("/")
    return bool(below) and not extensions.has_folder(name)
