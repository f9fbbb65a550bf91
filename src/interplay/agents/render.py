"""Turns messages into prompt ids with the model's own chat template. No text is tokenised twice.

The prompt of the next turn keeps the ids of the prompt and reply that it extends; only the text that the template adds
after them is tokenised. If the template rewrites earlier text (for example, removes old reasoning or trims a reply),
the ids cannot be kept: the whole prompt is then rendered again, and it extends nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from interplay.agents.soft import marked, parted, softly
from interplay.agents.syntax import schema, syntax_of
from interplay.engines.codec import TokenCodec
from interplay.errors import ModelError
from interplay.types import Media, MediaSpan, Message, SoftMessage, Tool, identity

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from interplay.models.senses import Senses

K = TypeVar("K")
V = TypeVar("V")
_PROMPT_BYTES, _REPLY_BYTES = 256 * 2**20, 64 * 2**20  # the most that a cache of prompts or of replies may hold
_ENTRY, _TOKEN = 1024, 40  # about the bytes of an entry without its contents, and of an id in a tuple


@dataclass(frozen=True, slots=True)
class Prompt:
    """`text` is the exact output of the template. `extends` names the sample whose prompt and reply `ids` begin with,
    token for token; None if the prompt was rendered from scratch. `digest` is a hash of the ids and media. With
    `begin`, a prompt with which this one begins, only what is new is hashed."""

    ids: tuple[int, ...]
    text: str
    extends: str | None = None
    media: tuple[MediaSpan, ...] = ()
    begin: InitVar[Prompt | None] = None
    digest: str = field(init=False)
    _hash: hashlib.blake2b = field(init=False, repr=False, compare=False)  # of repr(ids), up to the last bracket

    def __post_init__(self, begin: Prompt | None) -> None:
        known = identity(self.ids, self.media)
        new = known if begin is None else known[len(begin.ids) :]
        hashed = hashlib.blake2b(b"(", digest_size=8) if begin is None else begin._hash.copy()
        written = repr(new)[1:-1].removesuffix(",")
        hashed.update((f", {written}" if new and len(new) < len(known) else written).encode())
        object.__setattr__(self, "_hash", hashed)
        whole = hashed.copy()
        whole.update(b")" if len(known) != 1 else b",)")
        object.__setattr__(self, "digest", whole.hexdigest())

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


class _Cache(dict[K, V]):
    """What was rendered before. It is emptied when its contents have more than `limit` bytes. Their number says little:
    one conversation may be as long as a thousand others."""

    def __init__(self, limit: int, size: Callable[[K, V], int]) -> None:
        super().__init__()
        self.limit, self.size, self.bytes = limit, size, 0

    def __setitem__(self, key: K, value: V) -> None:
        size = _ENTRY + self.size(key, value)
        if self.bytes + size > self.limit:
            self.clear()
            self.bytes = 0
        self.bytes += size
        super().__setitem__(key, value)


def _prompt_bytes(key: tuple[tuple[Message, ...], tuple[Tool | str, ...]], prompt: Prompt) -> int:
    """About how many bytes an entry holds: the prompt's text and ids, and the messages with their media. The messages'
    text is about as long as the prompt's."""
    media = sum(len(one.data) for message in key[0] for one in message.media)
    return 2 * len(prompt.text) + _TOKEN * len(prompt.ids) + media


class Renderer:
    """With `senses`, messages may have the media that the model takes; each becomes a span of placeholders. Every model
    takes soft messages."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, stop_ids: Sequence[int], senses: Senses | None = None
    ) -> None:
        self.tokenizer, self.senses, self._codec = tokenizer, senses, TokenCodec(tokenizer)
        self.stop_ids = frozenset(stop_ids)
        self._stop_texts = sorted((tokenizer.decode([i]) for i in stop_ids), key=len, reverse=True)
        self._decoded = _Cache[tuple[int, ...], tuple[str, bool]](
            _REPLY_BYTES, lambda action, said: _TOKEN * len(action) + len(said[0])
        )
        self._fresh = _Cache(_PROMPT_BYTES, _prompt_bytes)
        self._replies = _Cache[tuple[str, ...], tuple[tuple[int, ...], ...]](
            _REPLY_BYTES, lambda texts, ids: sum(map(len, texts)) + sum(_TOKEN * len(i) + 2 * _TOKEN for i in ids)
        )
        self.syntax = syntax_of(tokenizer)
        marks = sorted((t for t in tokenizer.get_added_vocab() if len(t) > 1), key=len, reverse=True)
        self._marks = re.compile("|".join(map(re.escape, marks))) if marks else None

    def prompt(
        self, messages: tuple[Message, ...], before: Said | None = None, tools: tuple[Tool | str, ...] = ()
    ) -> Prompt:
        """The prompt for `messages`. `before` is the turn that they continue; its reply is one of the messages."""
        if self.senses is not None and self.senses.limit:
            messages = _newest(messages, self.senses.limit)
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
        ids = before.prompt.ids + before.action
        more, media = self._laid(rest, self._shown(messages)[len(before.prompt.media) :], len(ids))
        return Prompt(ids + more, text, before.id, before.prompt.media + media, before.prompt)

    def beginning(self, messages: Sequence[Message], tools: Sequence[str], most: int) -> Prompt | None:
        """If a conversation is far longer than `most` tokens: more than `most` tokens from its beginning. None if it
        may fit. To tokenise all of it could take minutes, in which no other episode goes on."""
        words = [w for m in messages for w in (m.content, *(c.arguments for c in m.tool_calls))] + list(tools)
        if sum(map(len, words)) <= 32 * most:
            return None
        text = "".join(words)[: 16 * most]
        ids = self._codec.encode(text)
        return Prompt(ids, text) if len(ids) > most else None

    def decode(self, action: tuple[int, ...]) -> tuple[str, bool]:
        """The reply's text without its end token, and whether it had one. Cached, because games repeat replies."""
        known = self._decoded.get(action)
        if known is None:
            known = self._decoded[action] = self._decode(action)
        return known

    def _decode(self, action: tuple[int, ...]) -> tuple[str, bool]:
        ended = bool(action) and action[-1] in self.stop_ids
        return self._codec.decode(action[:-1] if ended else action), ended

    def pieces(self, action: tuple[int, ...]) -> tuple[str, ...]:
        """The text of each token by itself."""
        return tuple(str(self.tokenizer.decode([i], skip_special_tokens=False)) for i in action)

    def replies(self, texts: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
        """The ids of the replies that may be sampled. Cached, because the same positions come up often."""
        known = self._replies.get(texts)
        if known is None:
            known = self._replies[texts] = tuple(dict.fromkeys(self.encode_reply(t) for t in texts))
        return known

    def encode_reply(self, text: str) -> tuple[int, ...]:
        """The ids of a given reply with its end token, for imitation and masks. Sampled text is never encoded again."""
        end = self.tokenizer.eos_token_id
        if end is None:
            raise ModelError("the tokenizer has no eos token; expected one, because imitation needs it to end a reply.")
        return (*self._codec.encode(text), int(end))

    def harmless(self, text: str) -> str:
        """Text from outside (a tool's output) in which the tokenizer's special tokens are broken up, so that they are
        read as ordinary text."""
        return text if self._marks is None else self._marks.sub(lambda m: f"{m[0][0]} {m[0][1:]}", text)

    def _whole(self, messages: tuple[Message, ...], tools: tuple[Tool | str, ...]) -> Prompt:
        cached = self._fresh.get((messages, tools))
        if cached is None:
            text = self._template(messages, tools)
            ids, media = self._laid(text, self._shown(messages))
            cached = Prompt(ids, text, media=media)
            self._fresh[messages, tools] = cached
        return cached

    def _template(self, messages: tuple[Message, ...], tools: tuple[Tool | str, ...]) -> str:
        told = [schema(t) for t in tools] if tools and self.syntax.native else None
        chat = self.syntax.chat(messages, tools)
        if any(softly(m.media) for m in messages):
            chat = [
                {**words, "content": marked(words.get("content") or "", m.media)}
                for words, m in zip(chat, messages, strict=True)
            ]
        if self.senses is not None:
            chat = [self._parts(words, m.media) for words, m in zip(chat, messages, strict=True)]
        try:
            text = self.tokenizer.apply_chat_template(chat, tools=told, tokenize=False, add_generation_prompt=True)
        except Exception as error:  # a template is code by the model's author: jinja can raise anything
            raise ModelError(f"the model's chat template does not accept the messages: {error}") from error
        return str(text)

    def _parts(self, words: dict[str, Any], media: tuple[Media, ...]) -> dict[str, Any]:
        """A message in the form that templates with media take. A placeholder in its text is broken up."""
        assert self.senses is not None
        token = self.senses.token
        text = (words.get("content") or "").replace(token, f"{token[0]} {token[1:]}")
        seen = ({"type": m.kind} for m in media if m.kind != "soft")
        return {**words, "content": [*seen, {"type": "text", "text": text}]}

    def _shown(self, messages: tuple[Message, ...]) -> list[Media]:
        """All media that have a place in the prompt."""
        every = [m for message in messages for m in message.media]
        return every if self.senses is not None else softly(every)

    def _laid(self, text: str, media: list[Media], start: int = 0) -> tuple[tuple[int, ...], tuple[MediaSpan, ...]]:
        """The ids of a text with all its media, and the spans of these."""
        soft = softly(media)
        if not soft:
            return (self._codec.encode(text), ()) if self.senses is None else self._with_media(text, media, start)
        parts, seen = parted(text), [m for m in media if m.kind != "soft"]
        if len(parts) != 2 * len(soft) + 1:
            raise ModelError(
                f"the model's chat template kept {len(parts) // 2} of the {len(soft)} soft messages of a prompt; "
                "expected it to write all messages that it is given."
            )
        ids, spans, other = tuple[int, ...](), tuple[MediaSpan, ...](), 0
        for n, part in enumerate(parts):
            if n % 2:
                one = soft[n // 2]
                new = self._codec.encode(part) or (self._filler,) * SoftMessage.read(one).tokens
                spans += (MediaSpan(start + len(ids), len(new), one.digest, one),)
            elif self.senses is None:
                new = self._codec.encode(part)
            else:
                count = self._codec.encode(part).count(self.senses.token_id) if n < len(parts) - 1 else len(seen)
                new, more = self._with_media(part, seen[other : other + count], start + len(ids))
                spans, other = spans + more, other + count
            ids += new
        return ids, spans

    @property
    def _filler(self) -> int:
        """The id in a place whose embedding is replaced."""
        return int(self.tokenizer.eos_token_id or 0)

    def _with_media(
        self, text: str, media: list[Media], start: int = 0
    ) -> tuple[tuple[int, ...], tuple[MediaSpan, ...]]:
        """The ids of a text in which each placeholder is replaced by the ids of its medium, and the spans of these. The
        text begins at place `start` of its prompt."""
        assert self.senses is not None
        ids, spans, left = list[int](), list[MediaSpan](), iter(media)
        for token in self._codec.encode(text):
            if token != self.senses.token_id:
                ids.append(token)
                continue
            one = next(left, None)
            if one is None:
                break
            stands = self.senses.ids(one)
            spans.append(MediaSpan(start + len(ids), len(stands), one.digest, one))
            ids += stands
        else:
            if len(spans) == len(media):
                return tuple(ids), tuple(spans)
        raise ModelError(
            f"the model's chat template did not write '{self.senses.token}' once for each of the {len(media)} media; "
            "expected one for each picture or sound."
        )


def _newest(messages: tuple[Message, ...], limit: int) -> tuple[Message, ...]:
    """The messages with the newest `limit` of their media."""
    out: list[Message] = []
    for message in reversed(messages):
        soft = tuple(softly(message.media))
        others = tuple(m for m in message.media if m.kind != "soft")
        kept = soft + (others[-limit:] if limit else ())
        limit -= len(kept) - len(soft)
        out.append(message if len(kept) == len(message.media) else replace(message, media=kept))
    return tuple(reversed(out))
