"""Pages that people read: a release, a model, a ledger; tables and charts."""
