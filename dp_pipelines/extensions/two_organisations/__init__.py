"""Runs of a job by several parties: the same plan, a table of each, and the sum of all tables under secret sharing."""
