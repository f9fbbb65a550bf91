"""Loads PyTorch and Transformers, and keeps progress bars and notices of other libraries off the terminal."""

from __future__ import annotations

import atexit
import gc
import importlib
import logging
import sys

from interplay.rollout.garbage import rare_collections


def quiet_libraries() -> None:
    if "transformers" not in sys.modules:
        _load()
    import transformers

    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # it would report each retry when offline
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()


def _load() -> None:
    """Import both libraries. The objects that they create live as long as the process, and searching through them again
    and again took the garbage collector a seventh of the time. So it rarely runs during the import, and later it skips
    these objects."""
    if sys.stderr.isatty():
        # Nothing is printed before the import ends, so a person would wait for ten seconds without knowing why.
        sys.stderr.write("loading PyTorch and Transformers, which takes some seconds …\n")
    with rare_collections:
        importlib.import_module("transformers.models.auto.modeling_auto")  # this also imports torch
    gc.freeze()
    atexit.register(gc.unfreeze)  # else Triton's bindings print at the exit that objects were not freed
