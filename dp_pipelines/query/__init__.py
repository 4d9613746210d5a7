"""Queries and their parts: a release of metrics over partitions, or a model to be trained."""
