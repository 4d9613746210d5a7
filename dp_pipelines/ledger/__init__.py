"""The ledger: one account for all releases about the same people, which remembers, refuses and proves.

Rooms: `units` (integer costs), `events` (what can happen, and the hash chain), `state` (what the events add up to), `rules`
(what still fits into an account), `refusals` (requests that make no sense), `places` and `database` (SQLite or PostgreSQL),
`anchor` (the head of the chain in a second place), `journal` (all of these as one open ledger), `ledger` (the operations of a
run), `export` (for auditors); `answers`, `answers_ledger`, `answers_export` (accounts of what people's devices are asked, which
are never added to the others). Only the driver of a run talks to a ledger, workers never. SQLAlchemy is imported by `places`
and `database` alone.
"""
