"""Any order of admissions, attempts, releases, crashes and clock jumps: a model keeps what was promised, the ledger keeps it too.

Holds after each step: no account is above its cap, what is spent is the sum of what was charged, one commit for each release,
a release never changes, and the events alone give the same state again.
"""

import hashlib
import os
import pathlib
import shutil
import tempfile

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dp_pipelines.errors import BudgetError, RequestError
from dp_pipelines.ledger import events
from dp_pipelines.ledger.entries import FILTER, Cost, Window
from dp_pipelines.ledger.ledger import Ledger, MovedOn
from dp_pipelines.ledger.state import State
from tests.helpers.ledgers import admit, open_account, plan

PLANS = [plan(0.25, 1e-7), plan(0.3, 1e-7, 3), plan(0.1, 1e-8), plan(0.4, 4e-7)]
ACCOUNTS = ["reserved", "filter", "windowed"]
IDS = st.sampled_from(["a", "b", "c", "d"])
CLOCKS = ["2026-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "2038-01-19T03:14:08Z", ""]


class Life(RuleBasedStateMachine):
    """One ledger, two processes that hold it open, and what was promised so far."""

    @initialize()
    def begin(self) -> None:
        memory = pathlib.Path("/dev/shm")
        self.folder = tempfile.mkdtemp(dir=memory if os.access(memory, os.W_OK) else None)
        os.environ["XDG_STATE_HOME"] = self.folder
        self.url, self.time = f"{self.folder}/ledger.sqlite", CLOCKS[0]
        ledger = Ledger.create(self.url, clock=self.clock)
        open_account(ledger, "reserved", epsilon=0.7)
        open_account(ledger, "filter", rule=FILTER, epsilon=0.5)
        open_account(ledger, "windowed", epsilon=0.4, window=Window(column="t", days=7, origin="2026-01-05"))
        self.handles = [ledger, Ledger.open(self.url, clock=self.clock)]
        self.released: dict[tuple[str, str], dict[str, bytes]] = {}
        self.believed: dict[tuple[str, str], str] = {}  # the attempt that a process believes to be its own

    def clock(self) -> str:
        return self.time

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)

    @rule(
        who=st.integers(0, 1),
        account=st.sampled_from(ACCOUNTS),
        name=IDS,
        of=st.sampled_from(PLANS),
        week=st.booleans(),
    )
    def admit(self, who: int, account: str, name: str, of, week: bool) -> None:
        window = ("2026-01-05" if week else "2026-01-12") if account == "windowed" else ""
        ledger = self.handles[who]
        try:
            run = admit(ledger, name, of, account=account, window=window)
        except BudgetError:
            return
        except RequestError:
            known = ledger.run(account, name)
            assert known is not None
            assert (known.plan, known.window) != (of.digest[:16], window)
            return
        assert run.committed == ((account, name) in self.released)

    @rule(who=st.integers(0, 1), account=st.sampled_from(ACCOUNTS), name=IDS, size=st.integers(0, 50))
    def go_on(self, who: int, account: str, name: str, size: int) -> None:
        """The next step of a run, by a process that may have seen nothing of the last ones."""
        ledger, key = self.handles[who], (account, name)
        run = ledger.run(account, name)
        if run is None:
            return
        attempt = self.believed.get(key, "none")
        content = {"weekly": hashlib.sha256(f"{key}{attempt}".encode()).digest() * size}
        digests = {name: hashlib.sha256(held).hexdigest() for name, held in content.items()}
        before = Ledger.open(self.url).run(account, name)
        assert before is not None
        try:
            if run.state == "reserved":
                new = f"{len(ledger.history)}-{who}"
                ledger.start(run, attempt=new, staging="/nowhere", where={})
                self.believed[key] = new
            elif run.state == "started":
                ledger.staged(run, attempt=attempt, files=digests)
            elif run.state == "staged":
                ledger.commit(run, attempt=attempt, files={**content, "weekly": content["weekly"]})
                assert key not in self.released
                self.released[key] = content
            elif run.committed:
                ledger.published(run, f"/out/{size}")
        except MovedOn:
            # Refused only where the run is not where this process believed it, or staged other bytes.
            staged = before.attempts[-1].staged if before.attempts else {}
            assert before != run or staged != digests

    @rule(account=st.sampled_from(ACCOUNTS), name=IDS, who=st.integers(0, 1), destroyed=st.booleans())
    def end(self, account: str, name: str, who: int, destroyed: bool) -> None:
        run = self.handles[who].run(account, name)
        if run is not None and run.attempts:
            try:
                self.handles[who].end(run, attempt=run.attempts[-1].name, how="it is gone", destroyed=destroyed)
            except MovedOn:
                ended = Ledger.open(self.url).state.runs[account, name]
                assert ended.state not in ("started", "staged") or ended.attempts[-1].name != run.attempts[-1].name

    @rule(account=st.sampled_from(ACCOUNTS), name=IDS, who=st.integers(0, 1))
    def give_up(self, account: str, name: str, who: int) -> None:
        ledger = self.handles[who]
        run = ledger.run(account, name)
        if run is None:
            return
        before = ledger.account(account).spent.get(run.window, Cost())
        try:
            given_up = ledger.abandon(run)
        except RequestError:
            return
        assert (account, name) not in self.released
        assert given_up.given_back == all(attempt.destroyed for attempt in given_up.attempts)
        if not given_up.given_back:
            assert before.within(ledger.account(account).spent.get(run.window, Cost()))

    @rule(who=st.integers(0, 1))
    def crash(self, who: int) -> None:
        self.handles[who] = Ledger.open(self.url, clock=self.clock)

    @rule(who=st.integers(0, 1))
    def look(self, who: int) -> None:
        self.handles[who].refresh()

    @rule(time=st.sampled_from(CLOCKS))
    def jump(self, time: str) -> None:
        self.time = time

    @invariant()
    def nothing_is_above_a_cap_and_all_is_accounted_for(self) -> None:
        if not hasattr(self, "handles"):
            return
        ledger = Ledger.open(self.url)
        charged: dict[tuple[str, str], Cost] = {}
        back: dict[tuple[str, str], Cost] = {}
        commits: dict[tuple[str, str], int] = {}
        last_cost: dict[tuple[str, str], tuple[str, Cost]] = {}
        again = State()
        for event in ledger.history:
            body = event.content
            again.apply(event)
            if "cost" in body:
                key = (body["account"], body["window"])
                charged[key] = charged.get(key, Cost()) + Cost.from_json(body["cost"])
            if event.kind == events.RUN_RESERVED:
                last_cost[body["account"], body["run_id"]] = (body["window"], Cost.from_json(body["cost"]))
            if event.kind == events.RUN_ABANDONED and body["given_back"]:
                window, cost = last_cost[body["account"], body["run_id"]]
                back[body["account"], window] = back.get((body["account"], window), Cost()) + cost
            if event.kind == events.RUN_COMMITTED:
                commits[body["account"], body["run_id"]] = commits.get((body["account"], body["run_id"]), 0) + 1
        assert again == ledger.state
        for account in ledger.state.accounts.values():
            for window, spent in account.spent.items():
                key = (account.name, window)
                assert spent == charged[key] - back.get(key, Cost())
                assert Cost().within(spent)
                assert spent.within(account.cap)
        assert commits == dict.fromkeys(self.released, 1)
        for (account, name), content in self.released.items():
            run = ledger.run(account, name)
            assert run is not None
            assert ledger.release(run) == content


TestLife = Life.TestCase
TestLife.settings = settings(
    max_examples=15, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)  # fmt: skip
