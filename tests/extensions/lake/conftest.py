"""Fixtures of the core's tests that those of tables of data lakes need too: small disks, a store that speaks S3, two tables."""

from tests.helpers.small_disks import small_disk  # noqa: F401 - a fixture
from tests.jobs.run.test_joined_tables import world  # noqa: F401 - a fixture
from tests.jobs.stores.test_s3_sources import rows, store  # noqa: F401 - fixtures
