"""Bounds that are chosen from noisy histograms, where a query says `auto`."""
