"""What mechanisms cost together: records, privacy loss distributions and their composition. No stages here."""
