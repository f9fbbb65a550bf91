"""Loads PyTorch and Transformers, and keeps progress bars and notices of other libraries off the terminal."""

from __future__ import annotations

import logging
import sys

from interplay.rollout.garbage import load_libraries


def quiet_libraries() -> None:
    if "transformers" not in sys.modules:
        _load()
    import transformers

    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # it would report each retry when offline
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()


def _load() -> None:
    if sys.stderr.isatty():
        # Nothing is printed before the import ends, so a person would wait for ten seconds without knowing why.
        sys.stderr.write("loading PyTorch and Transformers, which takes some seconds …\n")
    load_libraries()
