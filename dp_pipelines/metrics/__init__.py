"""What can be released for a partition: each metric names the statistics that it needs, and how it ends."""
