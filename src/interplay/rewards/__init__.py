"""Decides what replies are worth: checkers and verifiers. No torch."""
