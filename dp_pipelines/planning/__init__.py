"""From stages and a budget to noise: what is chosen, calibrated, fixed and split over runs, before a row is read."""
