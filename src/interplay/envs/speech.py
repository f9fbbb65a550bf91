"""How one role's words enter another role's prompt."""

from __future__ import annotations

HEARD = 400  # characters that reach the other role


def heard(text: str, limit: int = HEARD) -> str:
    """A role's words as another role reads them: on one line, cut to `limit` characters, without chat markers."""
    words = "".join(c for c in " ".join(text[: 4 * limit].split()) if c.isprintable())
    return words.replace("<|", "< |")[:limit]
