"""What is asked: one release of metrics over partitions, or a model to be trained."""
