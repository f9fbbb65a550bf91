"""Turns messages into prompt ids with the model's own chat template. No text is tokenised twice.

The prompt of the next turn keeps the ids of the prompt and reply that it extends; only the text that the template adds
after them is tokenised. If the template rewrites earlier text (for example, removes old reasoning or trims a reply),
the ids cannot be kept: the whole prompt is then rendered again, and it extends nothing.
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
    """`text` is the exact output of the template. `extends` names the sample whose prompt and reply `ids` begin with,
    token for token; None if the prompt was rendered from scratch. `digest` is a hash of the ids and media."""

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
    """A prompt and the reply that was sampled from it. The next prompt may extend them."""

    prompt: Prompt
    action: tuple[int, ...]
    reply: str
    ended: bool  # the reply holds its own end token; otherwise the template adds it
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
        """The prompt for `messages`. `before` is the turn that they continue; its reply is one of the messages."""
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
        """The reply's text without its end token, and whether it had one. Cached, because games repeat replies."""
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
        """The ids of the replies that may be sampled. Cached, because the same positions come up often."""
        known = self._replies.get(texts)
        if known is None:
            if len(self._replies) >= _CACHE_LIMIT:
                self._replies.clear()
            known = self._replies[texts] = tuple(dict.fromkeys(self.encode_reply(t) for t in texts))
        return known

    def encode_reply(self, text: str) -> tuple[int, ...]:
        """The ids of a given reply with its end token, for imitation and masks. Sampled text is never encoded again."""
        end = self.tokenizer.eos_token_id
        if end is None:
            raise ModelError("the tokenizer has no eos token; imitation needs one to end a reply.")
        return (*self._encode(text), int(end))

    def harmless(self, text: str) -> str:
        """Text from outside (a tool's output) in which the tokenizer's special tokens are broken up, so that they are
        read as ordinary text."""
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
        except Exception as error:  # a template is code by the model's author: jinja can raise anything
            raise ModelError(f"the model's chat template refused the messages: {error}") from error
        return str(text)

    def _encode(self, text: str) -> tuple[int, ...]:
        if not text:
            return ()
        return tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])
