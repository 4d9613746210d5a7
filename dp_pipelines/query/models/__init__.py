"""Models that learn otherwise than by noisy gradient steps over all units."""
