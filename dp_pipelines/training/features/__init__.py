"""Turns columns into the numbers that a model sees."""
