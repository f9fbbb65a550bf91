"""Keep other libraries' progress bars and notices off the terminal."""

from __future__ import annotations


def quiet_libraries() -> None:
    import logging

    import transformers

    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # five retries of a hub that is not there
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
