"""Private partition selection: decides which partitions may be published, such that one unit hardly matters.

In: numbers (a law of noise, sensitivities in integer steps, epsilon and delta). Out: integer tables and thresholds.
Holds: what docs/proofs/selection.md proves. Not covered: which strategy a plan takes and what it costs besides its
delta (dp_pipelines.planning), and the draws themselves (dp_pipelines.release).
"""

#     truncated_geometric.py   the optimal strategy for a unit in one partition: a coin that depends on the number of units
#     thresholds.py            noise and a threshold: on the number of units, or on weights that share a unit out
#
# **`min_users`.** Every strategy decides by the number n of units in a partition, and adding one unit moves n by at
# most 1. With `min_users` m the strategy is applied to n' = n - (m - 1), and never keeps a partition with n' < 1. The
# strategy does not see the first m - 1 units, so its guarantee is unchanged, and a partition with m units is kept as
# rarely as one with a single unit would be. This is not a second test next to the strategy: "keep if selected, and if
# n >= m" would reveal with certainty whether n >= m. Weighted selection does not decide by a number of units, so there
# m must be 1.
