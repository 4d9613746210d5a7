"""What tests of the core's protocols share with those of jobs: the shop, and the command line called in this process."""

from tests.jobs.conftest import call, own_anchors, shop  # noqa: F401 - fixtures
