"""Keep other libraries' progress bars and notices off the terminal."""

from __future__ import annotations


def quiet_libraries() -> None:
    import transformers

    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
