"""Dataflow: its job graph, and uploads to a bucket."""
