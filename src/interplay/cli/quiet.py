"""Keeps progress bars and notices of other libraries off the terminal."""

from __future__ import annotations

import sys


def quiet_libraries() -> None:
    import logging

    if "transformers" not in sys.modules and sys.stderr.isatty():
        # The first output comes after this, so a person would wait for ten seconds without knowing why.
        sys.stderr.write("loading PyTorch and Transformers, which takes some seconds …\n")
    import transformers

    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # it would report each retry when offline
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
