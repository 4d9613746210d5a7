"""What a session's query would cost, before it is paid: shown in a notebook.

In: a plan as JSON, an account before and after. Out: text. Holds: public numbers only.
"""

import dataclasses
import io
from collections.abc import Mapping
from typing import Any

from markupsafe import escape

from dp_pipelines.jobs.session.result import left_in_words
from dp_pipelines.jobs.session.session_account import SessionBudget
from dp_pipelines.jobs.terminal import summary


@dataclasses.dataclass(frozen=True, kw_only=True)
class Price:
    """The price of a query.

    Args:
        name: of the query.
        charged: whether it was charged before, so that asking again costs nothing more.
        released: whether it has its release, too.
        fits: whether the account has room for it.
        plan: what `dp-pipelines plan --json` would print: noise, thresholds, costs.
        before: `cap`, `spent` and `left` of the account.
        after: the same once it is charged.
        unit: the privacy unit of the account, in words.
    """

    name: str
    charged: bool
    released: bool
    fits: bool
    plan: Mapping[str, Any] = dataclasses.field(repr=False)
    before: Mapping[str, SessionBudget]
    after: Mapping[str, SessionBudget]
    unit: str = "unit"

    @property
    def epsilon(self) -> float:
        """What it costs by itself, as its plan accounts for it."""
        return float(self.plan["accounted"]["epsilon"])

    @property
    def delta(self) -> float:
        """What it costs by itself."""
        return float(self.plan["accounted"]["delta"])

    def __repr__(self) -> str:
        """Noise and thresholds, then the cost."""
        out = io.StringIO()
        summary.print_plan(self.plan, out, unit=self.unit)
        return f"{out.getvalue().rstrip()}\n{self._told()}"

    @property
    def brief(self) -> str:
        """The cost alone, below the warnings of the plan: what a query prints before its release, which is a table itself."""
        return "\n".join([*(f"warning: {words}" for words in summary.warnings_of(self.plan)), self._told()])

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>"

    def _told(self) -> str:
        if self.released:
            return f"{self.name}: has its release, asking again costs nothing; {left_in_words(self.before)}"
        if self.charged:
            told = "charged before and not released yet, trying again costs nothing more"
            return f"{self.name}: {told}; {left_in_words(self.before)}"
        if not self.fits:
            return f"{self.name}: does not fit; {left_in_words(self.before)}"
        return f"{self.name}: not charged yet; once it is, {left_in_words(self.after)}"
