"""Trains a model under the plan's budget: encoding, the store of examples, sampling, noise, kernels, the loop.

Nothing here imports Beam; JAX is imported only when it is used.
"""
