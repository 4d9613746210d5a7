"""The sums of clipped gradients, for each kind of model."""
