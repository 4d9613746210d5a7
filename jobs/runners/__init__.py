"""Where a pipeline runs: options, engines, what can be seen of them, what dead drivers leave there."""
