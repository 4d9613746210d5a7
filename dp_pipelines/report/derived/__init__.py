"""Ratios and expressions of released numbers, with intervals of their noise."""
