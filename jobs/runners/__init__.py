"""Where a pipeline runs: options, engines, checks of them, and jobs that dead drivers left there."""
