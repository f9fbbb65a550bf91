"""Keeps progress bars and notices of other libraries off the terminal."""

from __future__ import annotations


def quiet_libraries() -> None:
    import logging

    import transformers

    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # it would report each retry when offline
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
