"""The age of a token, in training steps."""

from __future__ import annotations

from interplay.training.versions import Versions


def test_lags_count_training_steps_not_optimiser_steps() -> None:
    """Three optimiser steps make one training step; the last of them is that step's version."""
    versions = Versions()
    versions.made("a", 0, 0)
    for step in range(3):
        for minibatch in range(3):
            versions.made("a", 3 * step + minibatch + 1, step)
        versions.made("a", 3 * step + 3, step + 1)  # the training step is completed
    assert versions.lags("a", (9,), 3) == (0,)
    assert versions.lags("a", (8, 7), 3) == (1, 1), "in the middle of the last step: weights that are no more"
    assert versions.lags("a", (6, 5, 3, 0), 3) == (1, 2, 2, 3)


def test_versions_of_another_process_count_as_the_oldest() -> None:
    versions = Versions()
    versions.made("a", 41, 7)
    assert versions.lags("a", (41, 40), 7) == (0, 1)
    assert versions.lags("unknown", (3,), 2) == (1,)
