"""A job that is ready to be planned: file, parameters, sources and expressions agree."""
