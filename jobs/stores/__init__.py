"""Stores of objects: which files there are by URL, how they are opened, folders that are written there."""
