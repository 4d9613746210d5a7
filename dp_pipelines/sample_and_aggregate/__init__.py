"""A function of one's own on disjoint blocks of units, and a private mean or median of its results."""
