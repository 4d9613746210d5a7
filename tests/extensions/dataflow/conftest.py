"""The shop with its rows in a bucket, for tests of Dataflow."""

from tests.jobs.stores.test_bucket_sources import bucket  # noqa: F401 - a fixture
