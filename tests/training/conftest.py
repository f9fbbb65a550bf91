"""For every test of training."""

from __future__ import annotations

import pytest
from transformers.utils import logging


@pytest.fixture(autouse=True)
def quiet() -> None:
    """No progress bars of other libraries in the output of a failed test."""
    logging.disable_progress_bar()
