"""The place of a page that a command writes: what may be replaced there.

In: a path. Out: a refusal, or text with a mark. Holds: a published folder is never changed, nor a file replaced that is no page
(a slip of the pen names a job file or a ledger), nor Markdown in which somebody has written. Not covered: what pages say.
"""

import hashlib
import pathlib
import re

from dp_pipelines.errors import RequestError
from dp_pipelines.report.key_text import visible

HTML = b"<!DOCTYPE html>"
"""How each of our pages begins."""

BEGINNING = 12
"""By so many bytes kinds of files are told apart: as many as the name of the first key, column or element needs."""

MARK = re.compile(rb"\n<!-- written by dp-pipelines ([0-9a-f]{64}) -->\n\Z")
"""The last line of Markdown: a digest of all before it, by which a page that somebody has changed is told from another."""


def refuse_unfit(target: pathlib.Path) -> None:
    """Refuse a place where no page may be written.

    Args:
        target: of the page.

    Raises:
        RequestError: it is a folder, inside a release, or another file than an unchanged page.
    """
    field, hint = f"--output {visible(str(target))!r}", "name a file elsewhere"
    if target.is_dir():
        raise RequestError(field=field, message="is a folder", hint=hint)
    refuse_in_release(target, field)
    other = RequestError(field=field, message="is a file that is no page, and is not replaced", hint=hint)
    if target.exists() and not target.is_file():
        raise other
    if not target.exists() or target.stat().st_size == 0:
        return
    if target.suffix.lower() != ".md":
        with target.open("rb") as file:
            if file.read(len(HTML)) != HTML:
                raise other
    elif not _unchanged(target.read_bytes()):
        message = "is Markdown in which somebody has written, and is not replaced"
        raise RequestError(field=field, message=message, hint="name another file")


def refuse_other(target: pathlib.Path, content: bytes) -> None:
    """Refuse a place where no file of data may be written.

    Args:
        target: of the file.
        content: what is to be written; a file that begins alike was written by the same command.

    Raises:
        RequestError: it is inside a release, or a file of another kind.
    """
    field = f"--output {visible(str(target))!r}"
    refuse_in_release(target, field)
    if not target.is_file() or target.stat().st_size == 0:
        return
    with target.open("rb") as file:
        if file.read(BEGINNING) != content[:BEGINNING]:
            message = "is a file of another kind, and is not replaced"
            raise RequestError(field=field, message=message, hint="name a file elsewhere")


def refuse_in_release(target: pathlib.Path, field: str) -> None:
    """Refuse a place inside a published folder.

    Args:
        target: of what is written.
        field: which names it in messages.

    Raises:
        RequestError: it is there.
    """
    if any((folder / "manifest.json").exists() for folder in (target.parent, target.absolute().parent.parent)):
        message = "is inside a published folder, which is never changed"
        raise RequestError(field=field, message=message, hint="name a file elsewhere")


def marked(text: str) -> str:
    """Markdown with a last line, which pages do not show, by which it is known as unchanged.

    >>> _unchanged(marked("# Page").encode()), _unchanged(marked("# Page").replace("P", "p").encode())
    (True, False)
    """
    return f"{text}\n<!-- written by dp-pipelines {hashlib.sha256(text.encode()).hexdigest()} -->\n"


def _unchanged(content: bytes) -> bool:
    found = MARK.search(content)
    return found is not None and hashlib.sha256(content[: found.start()]).hexdigest().encode() == found.group(1)
