"""Finds the replies of a seat to an outside program in the conversations that the program sends back.

A program sends the whole conversation with every call, and its framework may have changed it: tool arguments are
written as JSON again, white space is stripped, names are added. So every reply of a seat is kept under the conversation
that it ended, in the form that the program was given. If a message of the program equals such a reply, the sampled text
replaces it, and the prompt extends the ids of that reply.

What is trained never depends on this, because every call is a sample with its own ids. It only affects how many new
tokens a prompt has, and whether the model sees its own replies. How each conversation was recognised is counted
(`Sample.history`):

    new        it has no assistant message, so there is nothing to recognise
    kept       the newest reply was recognised, and the prompt extends its ids
    template   it was recognised, but the model's template (or a change of tools) writes what came before differently
    edited     this seat gave the reply, but the conversation before it has been changed since
    foreign    this seat never gave it: another agent, the program itself, or a framework that rewrites replies
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from interplay.agents.render import Prompt, Renderer, Said
from interplay.agents.syntax import Syntax
from interplay.types import HistoryMatch, Message, ProgramCall, Sample, Spoken, ToolCall

_THINK = re.compile("(</?think>)")


@dataclass(frozen=True, slots=True)
class Recalled:
    """A conversation as it is shown to the model. `chain` identifies the whole conversation as the program sent it."""

    prompt: Prompt
    messages: tuple[Message, ...]
    history: str
    chain: bytes
    times: int  # how often this seat was asked exactly this before


@dataclass(frozen=True)
class Memory:
    """The replies of one seat in one line of play. A memory never changes: `remember` returns a new one."""

    said: Mapping[bytes, Said] = field(default_factory=lambda: MappingProxyType({}))  # by the conversation it ended
    words: Mapping[tuple[object, ...], str] = field(default_factory=lambda: MappingProxyType({}))  # by the reply itself
    asked: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))  # by the digest of the prompt

    def recall(self, renderer: Renderer, messages: Sequence[Message], call: ProgramCall) -> Recalled:
        """The prompt for a conversation, in which the seat's own replies are as they were sampled."""
        chain, found, history = b"", None, "new"
        shown: list[Message] = []
        for message in messages:
            key = told(message, call.history)
            chain = _link(chain, key)
            if message.role != "assistant":
                shown.append(_plain(message))
                continue
            if chain in self.said:
                found, history = self.said[chain], "kept"
                shown.append(Message("assistant", found.reply))
            elif key in self.words:
                found, history = None, "edited"
                shown.append(Message("assistant", self.words[key]))
            else:
                found, history = None, "foreign"
                shown.append(Message("assistant", written(renderer.syntax, message)))
        prompt = renderer.prompt(tuple(shown), found, call.tools)
        if found is not None and not prompt.merged:
            history = "template"
        return Recalled(prompt, tuple(shown), history, chain, self.asked.get(prompt.digest, 0))

    def remember(
        self, recalled: Recalled, call: ProgramCall, spoken: Spoken, renderer: Renderer, sample: Sample
    ) -> Memory:
        """A memory with the reply to `recalled`: what was sampled, and what was sent to the program."""
        key = told(Message("assistant", spoken.content, tool_calls=spoken.calls), call.history)
        reply, ended = renderer.decode(sample.action)
        said = Said(recalled.prompt, sample.action, reply, ended, sample.id)
        return replace(
            self.again(recalled.prompt.digest),
            said=MappingProxyType({**self.said, _link(recalled.chain, key): said}),
            words=MappingProxyType({**self.words, key: reply}),
        )

    def again(self, digest: str) -> Memory:
        """A memory in which the prompt with this digest was asked once more."""
        return replace(self, asked=MappingProxyType({**self.asked, digest: self.asked.get(digest, 0) + 1}))


def spoken_in(syntax: Syntax, text: str, call: ProgramCall, name: str) -> Spoken:
    """A sampled text as it is sent to the program. `name` is the sample's name, from which its calls get their ids."""
    for stop in call.stop:
        text = text.partition(stop)[0]
    if not call.tools:
        return Spoken(text)
    words, calls = syntax.spoken(text, call.tools)
    calls = calls if call.parallel else calls[:1]
    made = [ToolCall(f"call_{_digest(f'{name}/{n}')}", *one) for n, one in enumerate(calls)]
    return Spoken(words, tuple(made))


def told(message: Message, how: HistoryMatch) -> tuple[object, ...]:
    """What a message is recognised by. Pictures and sounds are recognised by their digests. `noise` ignores differences
    in white space, in the writing of JSON and around think tags. `ids` also recognises a message with tool calls by the
    ids of these calls alone, whatever text it has."""
    if message.role != "assistant":
        return message.role, message.content, message.tool_call_id, tuple(m.digest for m in message.media)
    if how == "exact":
        return "assistant", message.content, tuple((c.id, c.name, c.arguments) for c in message.tool_calls)
    calls = tuple((c.id, c.name, _canonical(c.arguments)) for c in message.tool_calls)
    if how == "ids" and calls:
        return "assistant", tuple(c.id for c in message.tool_calls)
    return "assistant", " ".join(_THINK.sub(r" \1 ", message.content).split()), calls


def written(syntax: Syntax, message: Message) -> str:
    """An assistant's message, with its calls written as this model writes them."""
    calls = [syntax.wrote(call) for call in message.tool_calls]
    return "\n".join([*([message.content] if message.content or not calls else []), *calls])


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def _plain(message: Message) -> Message:
    return Message(message.role, message.content, media=message.media)


def _canonical(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments


def _link(chain: bytes, key: tuple[object, ...]) -> bytes:
    return hashlib.blake2b(chain + repr(key).encode(), digest_size=16).digest()
