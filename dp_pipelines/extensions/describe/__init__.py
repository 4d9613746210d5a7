"""The command `describe`: a privacy impact assessment of a job, before a row is read."""
