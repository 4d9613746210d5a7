"""The ledger: one account for all releases about the same people. It records what was spent and refuses what does not fit.

Modules: `units` (integer costs), `events` (kinds of events, and the hash chain), `state` (accounts, plans and runs), `rules`
(charges that still fit into an account), `refusals` (invalid requests), `places` and `database` (SQLite or PostgreSQL),
`anchor` (the head of the chain in a second place), `journal` (all of these as one open ledger), `ledger` (the operations of a
run), `export` (for
auditors), `account_kind` (accounts of other kinds, whose rules extensions have). Only the driver of a run talks to a ledger,
workers never. SQLAlchemy is imported by `places` and `database` alone.
"""
