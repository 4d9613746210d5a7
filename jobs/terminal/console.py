"""The console that commands print tables and styled lines with.

In: texts in rich's markup, or styled texts. Out: styled text on a terminal, plain lines elsewhere. Holds: escape sequences are
those of its own styles; what keys and names bring is `harmless`. Not covered: what is printed without a console (`output`).
"""

from collections.abc import Iterable
from typing import Any, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
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
        """Return a text to be rendered: every string that is printed, and each cell of a table that is one, passes here."""
        return super().render_str(harmless(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Return what is written: each `Text` passes here, alone or in a table or another part."""
        if isinstance(renderable, Text) and (plain := harmless(renderable.plain)) != renderable.plain:
            renderable = Text(
                plain, renderable.style, justify=renderable.justify, overflow=renderable.overflow, end=renderable.end
            )  # without the styles of its parts, whose places have moved
        return super().render(renderable, options)
