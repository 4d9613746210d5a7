"""The parts of an engine that every runner shares: how objects in buckets are opened."""
