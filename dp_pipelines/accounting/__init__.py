"""Privacy accounting: mechanism records, privacy loss distributions and their composition. No stages here."""
