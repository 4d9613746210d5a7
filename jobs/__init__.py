"""dp_pipelines.jobs: job files, from text to plan to pipeline, and the command line."""
