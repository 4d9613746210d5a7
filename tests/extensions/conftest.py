"""What tests of extensions share with those of jobs: the shop, and the command line called in this process."""

from tests.helpers.postgres import postgres, server  # noqa: F401 - fixtures
from tests.jobs.conftest import call, own_anchors, shop  # noqa: F401 - fixtures
