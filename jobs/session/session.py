"""A notebook's way in: one account, one table of rows, questions one after the other, and what is left always in sight.

In: rows (Parquet files, a pyarrow table, a frame of pandas or Polars), a privacy unit, a cap, a ledger. Out: releases. Holds: a
query goes the way of a scheduled job: planned from public facts, reserved in the ledger before a row is read, run, committed,
published; a query that does not fit is refused by the ledger and costs nothing; a name stands for one release for ever, so that a
notebook can be run again. Queries may be chosen after seeing earlier releases: both rules of a ledger are sound for that
(docs/proofs/sessions.md). Not covered: rows that changed under the same name; what else is printed in the notebook.
"""

import dataclasses
import os
import pathlib
import re
import urllib.parse
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from markupsafe import escape

from dp_pipelines import checks
from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.request.request import Request, check
from dp_pipelines.jobs.run import ledger_account, renamed_jobs, run
from dp_pipelines.jobs.session import session_account
from dp_pipelines.jobs.session.call_arguments import folder_name, given_query, pattern_of, refuse_unit
from dp_pipelines.jobs.session.price import Price
from dp_pipelines.jobs.session.result import Release, left_in_words
from dp_pipelines.jobs.session.session_account import SessionBudget
from dp_pipelines.jobs.sources import late_pandas, source_files, tables
from dp_pipelines.jobs.sources.source_files import Source
from dp_pipelines.jobs.spec import stage_keys
from dp_pipelines.jobs.spec.from_query import job_of, job_of_statement
from dp_pipelines.jobs.spec.job_file import JobFile
from dp_pipelines.jobs.terminal import output, summary
from dp_pipelines.jobs.terminal.harmless import harmless
from dp_pipelines.ledger import rules
from dp_pipelines.ledger.entries import Account, Cost, Run
from dp_pipelines.ledger.ledger import Ledger
from dp_pipelines.planning import appearing_groups
from dp_pipelines.planning.plan import Plan
from dp_pipelines.query.query import ContributionBounds, PrivatePartitions, PublicPartitions, Query
from dp_pipelines.report.words.unit_name import plural

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}\Z")

UNNAMED = "query"
"""What a query is called whose price is asked for without a name."""

SLACK = 1e-9
"""Shares of delta are smaller than asked for by this part, so that shares which add up to the cap fit into it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Planned:
    """A query that is ready to run."""

    request: Request
    plan: Plan
    price: Price


class Session:
    """Differentially private answers about one table, from one account.

    Args:
        data: a folder of Parquet files, a file name or pattern of such files; or a pyarrow table, a DataFrame of pandas or
            Polars, or what else has the Arrow stream protocol.
        privacy_unit: the column(s) that identify whom the guarantee protects.
        dataset: the account in the ledger: one for each group of people.
        epsilon, delta: the cap: the most that may ever be spent on one unit, by this session, other sessions and jobs together.
            Needed where the account is new; later they may be left out, or must be what the account says.
        ledger: its place, as for `dp-pipelines run --ledger`. None takes `dp-ledger.sqlite` in the current folder and opens the
            account there; a ledger that is named must exist and have the account (`dp-pipelines ledger init`).
        rule: how costs add up, where the account is new: `reserved` (epsilons add up) or `filter` (better for many queries).
        unit_words: the privacy unit in words, where the account is new: "customer".
        types: of pandas columns of Python objects that are not text, by name: `{"day": pa.date32()}`.
        releases: the folder in which each release is published, in a folder of its own.

    Raises:
        RequestError: an argument is wrong, or is not what the account says.
        LedgerError: the ledger cannot be used.

    >>> import tempfile
    >>> import dp_pipelines as dp
    >>> from dp_pipelines.ledger.ledger import Ledger
    >>> folder = tempfile.mkdtemp()
    >>> ledger = Ledger.create(f"{folder}/ledger.sqlite", anchor=f"{folder}/anchor")
    >>> account = ledger.open_account("shop", unit=["customer"], words="customer", epsilon=3, delta=1e-6)
    >>> rows = pa.table({"customer": range(2000), "region": ["north", "south"] * 1000})
    >>> session = dp.Session(rows, privacy_unit="customer", dataset="shop",
    ...                      ledger=f"{folder}/ledger.sqlite", releases=f"{folder}/releases")
    >>> release = session.query(
    ...     name="orders", epsilon=0.5, partition_by="region", metrics={"orders": dp.Count()}, show=False,
    ...     bounds=dp.ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1))
    >>> release.to_arrow().column_names
    ['region', 'orders', 'orders_stddev']
    >>> 2.5 <= session.remaining.epsilon < 2.51
    True
    """

    def __init__(
        self,
        data: Any,
        *,
        privacy_unit: str | Sequence[str],
        dataset: str,
        epsilon: float | None = None,
        delta: float | None = None,
        ledger: str | os.PathLike[str] | None = None,
        rule: str | None = None,
        unit_words: str | None = None,
        types: Mapping[str, pa.DataType] | None = None,
        releases: str | os.PathLike[str] = "dp-releases",
    ) -> None:
        late_pandas.put_off()
        self._folder = pathlib.Path.cwd()
        self._unit = checks.names(privacy_unit, "privacy_unit")
        self._dataset = checks.plain(checks.name(dataset, "dataset"), "dataset")
        self._held: Source | None = None
        files: tuple[str, ...] = ()
        if isinstance(data, str | os.PathLike):
            self._pattern = pattern_of(os.fspath(data), self._folder)
            files = source_files.find(self._pattern, self._folder)
            if types is not None:
                message = "is for columns of pandas; Parquet files have types"
                raise RequestError(field="types", message=message, hint="drop it")
        else:
            name, self._held = tables.hold(data, types)
            self._pattern = f"memory://{urllib.parse.quote(self._dataset, safe='')}"
            weakref.finalize(self, tables.release, name)
        found = self._held if self._held is not None else self._found()
        refuse_unit(self._unit, found)
        self._account = session_account.account_of(
            None if ledger is None else os.fspath(ledger),
            self._folder,
            dataset=self._dataset,
            unit=self._unit,
            words=unit_words,
            epsilon=None
            if epsilon is None
            else checks.number(epsilon, "epsilon", above=0, hint="write e.g. epsilon=3"),
            delta=None if delta is None else checks.number(delta, "delta", above=0, below=1),
            rule=rule,
            pattern=session_account.registered(self._pattern, self._folder),
            files=files,
            tell=lambda text: output.note(f"note: {text}"),
        )
        self._releases = self._folder / releases / folder_name(self._dataset)

    @property
    def remaining(self) -> SessionBudget:
        """What is left of the account now, after all that anybody has charged to it."""
        return self._account.budget()["left"]

    @property
    def spent(self) -> SessionBudget:
        """What is spent of the account now."""
        return self._account.budget()["spent"]

    @property
    def cap(self) -> SessionBudget:
        """The most that may ever be spent."""
        return self._account.budget()["cap"]

    def price(
        self,
        *given: str | Query,
        query: Query | None = None,
        name: str | None = None,
        epsilon: float,
        delta: float | None = None,
        where: str | None = None,
        columns: Mapping[str, str] | None = None,
        having: str | None = None,
        order_by: str | Sequence[str] | None = None,
        limit: int | None = None,
        **asked: Any,
    ) -> Price:
        """What a query would cost and how exact it would be; it reads no row and spends nothing.

        Arguments as for `query`, but the name may be left out: then nothing is said of what was charged under it.
        """
        query, name = given_query(given, query, name)
        shown = {"having": having, "order_by": order_by, "limit": limit}
        return self._planned(name, epsilon, delta, self._asked(query, name, where, columns, shown, asked)).price

    def query(
        self,
        *given: str | Query,
        query: Query | None = None,
        name: str | None = None,
        epsilon: float,
        delta: float | None = None,
        where: str | None = None,
        columns: Mapping[str, str] | None = None,
        having: str | None = None,
        order_by: str | Sequence[str] | None = None,
        limit: int | None = None,
        show: bool = True,
        as_new: bool = False,
        **asked: Any,
    ) -> Release:
        """Release a query: its cost is printed, the ledger reserves it, then rows are read.

        Args:
            given: the name, and a `Query` of what is asked for: `query("orders", Query(...), epsilon=0.5)`; or leave the `Query`
                out and give its arguments but for the privacy unit.
            query, name: the same by keyword. The name is that of the release, for ever: the same name with the same arguments
                gives the stored release again, without any charge and whatever the rows are by then; with others it is refused.
            epsilon: what it may cost.
            delta: what it may cost; left out, what it was when the name was first asked for with this epsilon, and before that
                as large a part of the cap's delta as `epsilon` is of the cap's epsilon.
            where: which rows are read, in SQL over one row, as in job files.
            columns: defined columns, in SQL over one row, as in job files: `{"week": "date_trunc('week', sold_at)"}`.
            having: which released rows are published, in SQL over the released columns, as in job files: `"orders > 50"`.
            order_by: released columns by which rows are printed, as in job files: `"orders desc"`; tables stay sorted by key.
            limit: how many rows are published: the first by `order_by`, which it needs.
            show: whether cost and warnings are printed before, in a line each; of a stored release there are none to print.
            as_new: True to charge a query that has only other names of metrics than a released one. Another name of the query
                with the same metrics is a new draw and needs no such permission.
            asked: `partition_by`, `bounds`, `metrics`, `partitions`, `row_id`, `top`, `best`.

        Raises:
            RequestError: it is wrong by public facts; nothing is spent.
            BudgetError: it does not fit into what is left; nothing is spent.
            LedgerError, DamagedInputError, RunFailed, PublishError: it failed; what was charged stays, and the same call tries
                again for the same charge.
        """
        query, name = given_query(given, query, name)
        if name is None:
            message = "is missing: a release has a name for ever"
            raise RequestError(field="name", message=message, hint='write e.g. query("orders-by-region", ...)')
        shown = {"having": having, "order_by": order_by, "limit": limit}
        job = self._asked(query, name, where, columns, shown, asked)
        return self._released(name, self._planned(name, epsilon, delta, job, as_new=as_new), show)

    def sql(
        self,
        statement: str,
        *,
        name: str,
        epsilon: float | None = None,
        delta: float | None = None,
        bounds: ContributionBounds | None = None,
        clips: Mapping[str, Any] | None = None,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
        partitions: PrivatePartitions | PublicPartitions | None = None,
        show: bool = True,
        as_new: bool = False,
    ) -> Release:
        """Release the answer to a SELECT statement: the same as the query that it stands for, under the same name.

        Args:
            statement: a SELECT over one table, with `FROM source` or `FROM` the dataset; docs/sql.md has what it may hold.
            name: of the release, for ever, as for `query`.
            epsilon, delta: as for `query`; BigQuery's clause in the statement may say them.
            bounds: as of a `Query`; None: the run chooses them.
            clips: the range of the values of each column, or of each metric by its name: `{"price": [0, 1000]}`;
                `["auto", 0, 100000]` has the bounds chosen within a range.
            settings: what a statement cannot say of a metric, by its name: `{"price": {"nullable": False}}`.
            partitions: as of a `Query`.
            show: whether cost and warnings are printed before.
            as_new: as for `query`.

        Raises:
            RequestError: it is wrong by public facts; nothing is spent. With the place in the statement.
            BudgetError, LedgerError, DamagedInputError, RunFailed, PublishError: as for `query`.
        """
        if not isinstance(statement, str):
            raise RequestError(field="statement", message="must be text", hint="write a SELECT statement")
        said = stage_keys.load("select", "statement").budget_of(statement)
        given = {"epsilon": epsilon, "delta": delta}
        cost = {key: said.get(key) if held is None else held for key, held in given.items()}
        if cost["epsilon"] is None:
            raise RequestError(field="epsilon", message="is missing", hint="write e.g. epsilon=0.5")

        def job(epsilon: float, delta: float) -> JobFile:
            return job_of_statement(
                statement, name, unit=self._unit, dataset=self._dataset, source={"parquet": self._pattern},
                folder=self._folder, epsilon=epsilon, delta=delta, bounds=bounds, clips=clips, settings=settings,
                partitions=partitions,
            )  # fmt: skip

        planned = self._planned(name, cost["epsilon"], cost["delta"], job, as_new=as_new)
        return self._released(name, planned, show)

    def _released(self, name: str, planned: _Planned, show: bool) -> Release:
        """The release of what is planned, made now or before."""
        if show and not planned.price.released:
            print(harmless(planned.price.brief))
        published = run.carry_out(
            planned.request,
            str(self._releases / name),
            run_id=name,
            ledger=self._account.place,
            planned=planned.plan,
            note=lambda text: None,  # what they say stands in the price
        )
        return Release(
            name=name,
            folder=published.folder,
            manifest=published.manifest,
            again=published.again,
            budget=self._account.budget(),
        )

    def _asked(
        self,
        query: Query | None,
        name: str | None,
        where: str | None,
        columns: Mapping[str, str] | None,
        shown: Mapping[str, Any],
        asked: Mapping[str, Any],
    ) -> Callable[[float, float], JobFile]:
        """The job of a query, once its price is known."""

        def job(epsilon: float, delta: float) -> JobFile:
            return job_of(
                self._query(query, asked), name or UNNAMED, dataset=self._dataset, source={"parquet": self._pattern},
                folder=self._folder, epsilon=epsilon, delta=delta, where=where, columns=columns, shown=shown,
            )  # fmt: skip

        return job

    def _planned(
        self,
        name: str | None,
        epsilon: float,
        delta: float | None,
        job: Callable[[float, float], JobFile],
        *,
        as_new: bool = True,
    ) -> _Planned:
        if name is not None and not NAME.match(name):
            message = "must be 1 to 100 letters, digits and signs of _.- and start with a letter or digit"
            raise RequestError(field="name", message=message, hint='write e.g. name="orders-by-region"')
        with self._account.ledger() as ledger:
            account = ledger.account(self._dataset)
            epsilon = checks.number(epsilon, "epsilon", above=0, hint="write e.g. epsilon=0.5")
            known = None if name is None else ledger.run(self._dataset, name)
            if known is not None and known.state == "abandoned":
                known = None
            if delta is None:
                delta = self._delta(ledger, account, known, epsilon)
            file = job(epsilon, delta)
            request = check(file, (), self._held)
            if known is not None and (known.plan, known.content) != (request.asked, request.content):
                raise RequestError(
                    field=f"name {name!r}",
                    message="stands for the release of another query, or of the same one with other arguments",
                    hint="give this query a name of its own, or ask exactly as before to have that release again",
                )
            block = None if name is None else ledger.block(self._dataset, "", request.asked)
            if known is None and block is None and not as_new:
                released = ledger_account.released_jobs(ledger.state, self._dataset, "")
                renamed_jobs.refuse_renamed(file.job, released, renamed_jobs.OF_QUERY)
            plan = run.plan_of(file, request.stages, None if block is None else block.body["frozen"])
            cost = Cost()
            if known is None:
                cost = rules.run_cost(account, plan.round(1).mechanisms)
                if block is None:
                    cost += rules.plan_cost(account, plan.accounted["epsilon"], plan.accounted["delta"])
            price = Price(
                name=name or UNNAMED,
                charged=known is not None,
                released=known is not None and known.committed,
                fits=cost.within(account.left(""))
                and (known is not None or block is None or len(block.rounds) < block.runs),
                plan=appearing_groups.in_units(plan.to_json(), plural(account.words)),
                unit=account.words,
                before=session_account.budget_of(account),
                after=session_account.budget_of(account, cost),
            )
        return _Planned(request=request, plan=plan, price=price)

    def _delta(self, ledger: Ledger, account: Account, known: Run | None, epsilon: float) -> float:
        """A query's delta where it is left out: a name's own, since the cap may have been raised meanwhile."""
        block = None if known is None else ledger.block(self._dataset, "", known.plan)
        if block is not None and block.body["budget"]["epsilon"] == epsilon:
            return float(block.body["budget"]["delta"])
        return min(account.delta * epsilon / account.epsilon * (1 - SLACK), account.delta)

    def _query(self, query: Query | None, asked: Mapping[str, Any]) -> Query:
        if query is None:
            known = {field.name for field in dataclasses.fields(Query)} - {"privacy_unit", "group", "windows"}
            for field in asked:
                if field not in known:
                    raise RequestError(
                        field=field, message="is no argument here", hint=f"there are: {', '.join(sorted(known))}"
                    )
            if "partition_by" not in asked:
                raise RequestError(field="partition_by", message="is missing", hint="add it, or give a Query")
            return Query(privacy_unit=self._unit, **asked)
        if asked:
            raise RequestError(field=next(iter(asked)), message="stands beside a query", hint="put it into the Query")
        if isinstance(query, Query) and query.unit_columns != self._unit:
            message = f"is not that of the session, which protects each {', '.join(self._unit)}"
            raise RequestError(
                field="query.privacy_unit", message=message, hint=f"write privacy_unit={list(self._unit)}"
            )
        return query

    def _found(self) -> Source:
        return source_files.look_at_parquet(source_files.find(self._pattern, self._folder))

    def __repr__(self) -> str:
        """Whom it protects, and what is left."""
        return "\n".join(f"{name:<10} {text}" for name, text in self._told().items())

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{escape(n)}</th><td>{escape(text)}</td></tr>" for n, text in self._told().items())
        return f"<table>{rows}</table>"

    def _told(self) -> dict[str, str]:
        with self._account.ledger() as ledger:
            account = ledger.account(self._dataset)
            done = [run_.run_id for run_ in ledger.state.runs_of(self._dataset) if run_.committed]
        budget = session_account.budget_of(account)
        spent = f"epsilon {summary.spent_number(budget['spent'].epsilon)}, delta {summary.spent_number(budget['spent'].delta)}"
        return {
            "session": f"{self._dataset} in {self._account.shown}",
            "protects": f"every {account.words} (all its rows together)",
            "spent": f"{spent} (rule {account.rule})",
            "budget": left_in_words(budget),
            "releases": ", ".join(done) or "none yet",
        }
