"""Evaluation: measures how well policies play."""
