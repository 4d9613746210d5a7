"""What the page shows of a trained model's weights."""
