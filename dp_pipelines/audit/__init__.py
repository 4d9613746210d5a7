"""Audits: compare what runs with what was accounted, by replays of a plan's draws with and without one worst-case unit.

No rows are read. `audit.audit` does all of it; docs/audit.md says what that covers.
"""
