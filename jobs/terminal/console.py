"""The console that commands print tables and styled lines with.

In: texts in rich's markup. Out: styled text on a terminal, plain lines elsewhere. Holds: escape sequences are those of its own
styles; what keys and names bring is `harmless`. Not covered: what is printed without a console (`output`).
"""

from typing import Any, TextIO

from rich.console import Console
from rich.text import Text

from dp_pipelines.jobs.terminal.harmless import harmless


class HarmlessConsole(Console):
    """A console whose texts are `harmless`, and whose own styles are not touched.

    Args:
        file: where it writes; one of `output.printing` holds back styles as they are.
        options: as for `rich.console.Console`.
    """

    def __init__(self, *, file: TextIO, **options: Any) -> None:
        super().__init__(file=getattr(file, "styled", file), **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return a text to be rendered: everything that is printed, and each cell of a table, passes here."""
        return super().render_str(harmless(text), **options)
