"""What tests of the core share with those of jobs: the command line called in this process."""

from tests.jobs.conftest import call, own_anchors, shop  # noqa: F401 - fixtures
