"""What mechanisms cost together: records, privacy loss distributions, their composition. Knows no stage."""
