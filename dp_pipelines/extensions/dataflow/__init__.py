"""Dataflow as a runner: its requirements, staging in a bucket, the job that it would get, uploads of a release."""
