"""Messages to prompt ids, with the model's own chat template; every token is made once.

The next turn's prompt keeps the ids of the one it extends: only the text that the template adds after it is
tokenised. Where a template rewrites what came before (strips old reasoning, trims a reply), the ids cannot be
kept; a new segment begins, and the caller sees a prompt that extends nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from interplay.agents.syntax import schema, syntax_of
from interplay.errors import ModelError
from interplay.types import MediaSpan, Message, Tool, identity

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_CACHE_LIMIT = 100_000


@dataclass(frozen=True, slots=True)
class Prompt:
    """`text` is exactly what the template gave. `extends` names the sample whose prompt and reply `ids` continue, token
    for token; None where the prompt was rendered anew. `digest` tells it from prompts that differ in ids or media."""

    ids: tuple[int, ...]
    text: str
    extends: str | None = None
    media: tuple[MediaSpan, ...] = ()
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        known = repr(identity(self.ids, self.media)).encode()
        object.__setattr__(self, "digest", hashlib.blake2b(known, digest_size=8).hexdigest())

    @property
    def merged(self) -> bool:
        return self.extends is not None


@dataclass(frozen=True, slots=True)
class Said:
    """A prompt and the reply that was sampled from it: what the next prompt may extend."""

    prompt: Prompt
    action: tuple[int, ...]
    reply: str
    ended: bool  # the reply closed its own turn; otherwise the template will close it
    id: str = ""  # of the sample


class Renderer:
    def __init__(self, tokenizer: PreTrainedTokenizerBase, stop_ids: Sequence[int]) -> None:
        self.tokenizer = tokenizer
        self.stop_ids = frozenset(stop_ids)
        self._stop_texts = sorted((tokenizer.decode([i]) for i in stop_ids), key=len, reverse=True)
        self._decoded: dict[tuple[int, ...], tuple[str, bool]] = {}
        self._fresh: dict[tuple[tuple[Message, ...], tuple[Tool | str, ...]], Prompt] = {}
        self._replies: dict[tuple[str, ...], tuple[tuple[int, ...], ...]] = {}
        self.syntax = syntax_of(tokenizer)
        marks = sorted((t for t in tokenizer.get_added_vocab() if len(t) > 1), key=len, reverse=True)
        self._marks = re.compile("|".join(map(re.escape, marks))) if marks else None

    def prompt(
        self, messages: tuple[Message, ...], before: Said | None = None, tools: tuple[Tool | str, ...] = ()
    ) -> Prompt:
        """The ids for `messages`; `before` is the turn that they continue, its reply being among them."""
        if before is None:
            return self._whole(messages, tools)
        text = self._template(messages, tools)
        old = before.prompt.text + before.reply
        if not text.startswith(old):
            return self._whole(messages, tools)
        rest = text[len(old) :]
        if before.ended:
            ending = next((t for t in self._stop_texts if rest.startswith(t)), None)
            if ending is None:
                return self._whole(messages, tools)
            rest = rest[len(ending) :]
        ids = before.prompt.ids + before.action + self._encode(rest)
        return Prompt(ids, text, before.id, before.prompt.media)

    def decode(self, action: tuple[int, ...]) -> tuple[str, bool]:
        """The reply's text without its end token, and whether it had one. (Games say the same things often.)"""
        known = self._decoded.get(action)
        if known is None:
            if len(self._decoded) >= _CACHE_LIMIT:
                self._decoded.clear()
            known = self._decoded[action] = self._decode(action)
        return known

    def _decode(self, action: tuple[int, ...]) -> tuple[str, bool]:
        ended = bool(action) and action[-1] in self.stop_ids
        ids = list(action[:-1] if ended else action)
        return str(self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)), ended

    def pieces(self, action: tuple[int, ...]) -> tuple[str, ...]:
        """The text of each token by itself."""
        return tuple(str(self.tokenizer.decode([i], skip_special_tokens=False)) for i in action)

    def replies(self, texts: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
        """The only replies that may be sampled, as ids. (A position comes up often: they are made once.)"""
        known = self._replies.get(texts)
        if known is None:
            if len(self._replies) >= _CACHE_LIMIT:
                self._replies.clear()
            known = self._replies[texts] = tuple(dict.fromkeys(self.encode_reply(t) for t in texts))
        return known

    def encode_reply(self, text: str) -> tuple[int, ...]:
        """A scripted reply as this model would have to say it: for imitation and masks, never for sampled text."""
        end = self.tokenizer.eos_token_id
        if end is None:
            raise ModelError("the tokenizer has no eos token; imitation needs one to end a reply.")
        return (*self._encode(text), int(end))

    def harmless(self, text: str) -> str:
        """Words from outside (a tool's output) with the tokenizer's own markers broken up: they stay words."""
        return text if self._marks is None else self._marks.sub(lambda m: f"{m[0][0]} {m[0][1:]}", text)

    def _whole(self, messages: tuple[Message, ...], tools: tuple[Tool | str, ...]) -> Prompt:
        cached = self._fresh.get((messages, tools))
        if cached is None:
            text = self._template(messages, tools)
            ids = self._encode(text)
            cached = Prompt(ids, text)
            if len(self._fresh) >= _CACHE_LIMIT:
                self._fresh.clear()
            self._fresh[messages, tools] = cached
        return cached

    def _template(self, messages: tuple[Message, ...], tools: tuple[Tool | str, ...]) -> str:
        told = [schema(t) for t in tools] if tools and self.syntax.native else None
        try:
            text = self.tokenizer.apply_chat_template(
                self.syntax.chat(messages, tools), tools=told, tokenize=False, add_generation_prompt=True
            )
        except Exception as error:  # templates are programs of the model's author: jinja raises what it likes
            raise ModelError(f"the model's chat template refused the messages: {error}") from error
        return str(text)

    def _encode(self, text: str) -> tuple[int, ...]:
        if not text:
            return ()
        return tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])
