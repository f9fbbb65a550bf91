"""`talk` of programs.py with the openai package."""

from __future__ import annotations

from typing import Any

from openai import OpenAI
from programs import Row, talked


def client_talk(row: Row) -> str:
    client = OpenAI()

    def ask(model: str, messages: Any) -> str:
        return client.chat.completions.create(model=model, messages=messages).choices[0].message.content or ""

    return talked(row, ask)
