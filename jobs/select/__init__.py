"""From a SELECT statement to what a job file would say."""
