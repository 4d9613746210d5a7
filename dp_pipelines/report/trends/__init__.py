"""One page of several published runs of one plan: their numbers over the runs, and the budget they spent."""
