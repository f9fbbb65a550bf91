"""Weights on a device: everything that the engine and the learner share."""
