"""Models that are not trained by noisy gradient steps over all units."""
