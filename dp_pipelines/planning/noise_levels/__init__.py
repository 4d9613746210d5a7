"""The noise of each statistic in integers, calibrated to a budget or given, and the partitions that pass by noise alone."""
