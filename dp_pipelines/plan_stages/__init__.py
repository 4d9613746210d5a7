"""A stage as the steps that it takes: histograms for its bounds, rounds of partitions, the parts of training."""
