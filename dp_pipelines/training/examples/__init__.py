"""Examples on disk, and who may read which."""
