"""`talk` of programs.py with the openai package."""

from __future__ import annotations

from functools import cache
from typing import Any

from openai import OpenAI
from programs import Row, talked


def client_talk(row: Row) -> str:
    return _talked(row, OpenAI())


@cache
def _one_client() -> OpenAI:
    return OpenAI()


def one_client_talk(row: Row) -> str:
    """All episodes of a process use the same client, with the connections that it keeps open."""
    return _talked(row, _one_client())


def _talked(row: Row, client: OpenAI) -> str:
    def ask(model: str, messages: Any) -> str:
        return client.chat.completions.create(model=model, messages=messages).choices[0].message.content or ""

    return talked(row, ask)
