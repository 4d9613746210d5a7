"""Columns as they come: read from text, cast, taken, filtered and joined without Arrow's limits."""
