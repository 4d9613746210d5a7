"""Jobs of collected stages: estimates from reports that devices have randomised, and no central budget."""
