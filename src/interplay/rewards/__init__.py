"""What it is worth: checkers and verifiers. No torch."""
