"""A chart as data: its axes, its marks, and a text for readers who do not see it.

In: axes and marks. Out: one `<svg>` element. Holds: the same chart gives the same bytes. Not covered: what is drawn (`charts`).
"""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

from markupsafe import Markup

from dp_pipelines.report.axes import Axis
from dp_pipelines.report.marks import Mark
from dp_pipelines.report.svg import ChartFrame, element


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chart:
    """What is drawn.

    Args:
        title: a text for readers without sight: the range, the extremes, the trend.
        height: in pixels.
        across: the axis below.
        up: the axis to the left.
        marks: what is between the axes; later ones lie above earlier ones.
        least: pixels that it is wide at least, its margins not counted.

    >>> from dp_pipelines.report.axes import TickAxis, ValueAxis
    >>> from dp_pipelines.report.marks import Dots
    >>> axes = {"across": TickAxis(bounds=(0, 1), places=[]), "up": ValueAxis(bounds=(0, 1))}
    >>> print(Chart(title="A point", height=50, marks=[Dots(points=[(0.5, 0.5)], size=4)], **axes).__html__().splitlines()[8])
    <path class="dots" d="M500 17h0" style="stroke: var(--mark); stroke-width: 4"/>
    """

    title: str
    height: float
    across: Axis
    up: Axis
    marks: Sequence[Mark]
    least: float = 0.0

    @property
    def frame(self) -> ChartFrame:
        """The margins and the ends of the axes."""
        return ChartFrame(
            height=self.height, left=self.up.margin, right=self.up.right, top=self.up.top, bottom=self.across.margin,
            across=self.across.ends, up=self.up.ends,
        )  # fmt: skip

    def __html__(self) -> Markup:
        """Return it as an element of a page."""
        frame = self.frame
        written = [(mark.stretched, text) for mark in self._all(frame) if (text := mark.written(frame))]
        shapes, texts = ([text for stretched, text in written if stretched is each] for each in (True, False))
        return element(frame, self.title, shapes, texts, self.least)

    def _all(self, frame: ChartFrame) -> Iterator[Mark]:
        """Yield the marks of the axes, then the others."""
        return itertools.chain(self.up.marks(frame), self.across.marks(frame), self.marks)
