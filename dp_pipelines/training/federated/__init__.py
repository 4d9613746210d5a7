"""Federated rounds: what a client computes from the published model, and clients that are simulated."""
