"""From columns to the numbers that a model sees."""
