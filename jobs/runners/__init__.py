"""Where a pipeline runs: options, engines, checks of engines, and jobs that dead drivers left behind."""
