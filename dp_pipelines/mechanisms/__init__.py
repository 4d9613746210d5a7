"""Mechanisms that release a statistic: each states its record, draws, and names itself, in one file."""
