"""Columns of any origin: read from text, cast, taken, filtered and joined without Arrow's limits."""
