"""What a release can do to the people in it: the odds of an attacker, and the page of an assessment."""
