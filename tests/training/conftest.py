"""Fixtures for every test of training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from transformers.utils import logging


@pytest.fixture(autouse=True)
def quiet() -> None:
    """No progress bars of other libraries in the output of a failed test."""
    logging.disable_progress_bar()


@pytest.fixture
def served() -> Iterator[Callable[..., str]]:
    from contextlib import ExitStack

    from chat_server import Chat, serving

    with ExitStack() as stack:

        def serve(answer: Callable[[dict[str, Any]], str]) -> str:
            return str(stack.enter_context(serving(Chat(answer=answer))).url)

        yield serve
