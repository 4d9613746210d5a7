"""A model that is trained under the plan's budget: encoding, the store of examples, sampling, noise, kernels, the loop.

Knows no Beam; JAX is imported where it is used and not before.
"""
