"""Runs a user's function on disjoint blocks of units, and releases a private mean or median of its results."""
