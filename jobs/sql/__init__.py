"""Expressions of one row: checked against a whitelist, tried before a row is read, evaluated in DuckDB."""
