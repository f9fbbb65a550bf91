"""Decides what replies are worth: checkers, verifiers and judges. No torch."""
