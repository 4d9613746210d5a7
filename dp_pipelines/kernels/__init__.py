"""The pure kernels of the data's way: canonical keys, shards, bounds, the integer lattice, accumulators.

They take Arrow tables and numbers, never a plan, and know neither Beam nor budgets. Every one is mergeable and independent
of order, batch split and process: tests/kernels holds that.
"""
