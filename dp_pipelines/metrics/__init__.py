"""Metrics that can be released for a partition: each names the statistics that it needs, and computes its value from them."""
