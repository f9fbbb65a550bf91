"""What `interplay --install-completion` gets wrong for zsh, mended in the script that Typer has written.

zsh loads the script at the first Tab of a shell. Typer's script only defines the completion then, so that Tab shows
nothing. It also writes an apostrophe as two, which zsh reads as one only with the option `rc_quotes`.
"""

from __future__ import annotations

from pathlib import Path

SCRIPT = Path(".zfunc/_interplay")  # in the user's home
_DEFINED = "_interplay_completion() {\n"
_LAST = "compdef _interplay_completion interplay"


def mend_zsh(home: Path) -> None:
    """Mend the script that Typer has written. If there is none, or if it looks different, nothing is changed."""
    path = home / SCRIPT
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if text.count(_DEFINED) == 1 and text.rstrip().endswith(_LAST) and "rc_quotes" not in text:
        text = text.replace(_DEFINED, _DEFINED + "  setopt local_options rc_quotes\n")
        path.write_text(text.rstrip() + '\n_interplay_completion "$@"\n', encoding="utf-8")
