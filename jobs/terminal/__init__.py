"""What people see: results, progress, and silence while rows are in memory."""
