"""What runs against what was accounted: a plan's noise, samples, clips and choices replayed with and without one worst-case unit.

No rows are read. `audit.audit` does all of it; docs/audit.md says what that covers.
"""
