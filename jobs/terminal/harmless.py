"""Text as a terminal may get it: a key or a name cannot move the cursor, hide or colour anything, or type for the user.

In: lines of ours, in which keys of a release, names of a job file or parameters may stand. Out: the same with control and
direction characters as escapes. Holds: everything that commands print passes here (`output`, `progress`, `silence`, `console`).
Not covered: files, and what other programs print of them.
"""

import re

_KEPT = re.compile(r"(\r?\n|\t)")
_HARMLESS = re.compile(r"(?:[ -~\n\t]|\r\n)*")


def harmless(text: str) -> str:
    r"""Return text without characters that act on a terminal; ends of lines and tabs stay.

    Args:
        text: any text, of several lines or one.

    >>> harmless("two\nlines"), harmless("a\x1b[2Jb\u202ec\rd")
    ('two\nlines', 'a\\u001b[2Jb\\u202ec\\u000dd')
    """
    if _HARMLESS.fullmatch(text):
        return text
    from dp_pipelines.report.key_text import visible  # loads Arrow

    return "".join(part if _KEPT.fullmatch(part) else visible(part, len(part)) for part in _KEPT.split(text))
