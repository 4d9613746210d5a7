"""A run, from a checked request to a published folder, with a ledger and without one."""
