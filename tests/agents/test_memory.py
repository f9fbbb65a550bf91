"""How closely a reply that a program sends back must match what was sampled: `exact`, `noise` and `ids`."""

from __future__ import annotations

import json
import time

import pytest

from interplay.agents.memory import Memory, spoken_in, told
from interplay.agents.render import Renderer
from interplay.agents.syntax import Hermes
from interplay.models.tiny import build_tokenizer
from interplay.types import HistoryMatch, Message, ProgramCall, Sample, Spoken, ToolCall

CALL = ToolCall("call_1", "add", '{"a":1, "b": 2}')
SAID = Spoken("<think>\nHm.\n</think>\n I call it.", (CALL,))
BACK = {
    "as it was": Message("assistant", SAID.content, tool_calls=(CALL,)),
    "white space": Message("assistant", "<think>\nHm.\n</think>\nI  call it.\n", tool_calls=(CALL,)),
    "think tags": Message("assistant", "<think>Hm.</think>I call it.", tool_calls=(CALL,)),
    "JSON": Message("assistant", SAID.content, tool_calls=(ToolCall("call_1", "add", '{"b":2,"a":1}'),)),
    "words dropped": Message("assistant", "", tool_calls=(CALL,)),
    "another reply": Message("assistant", "No.", tool_calls=(ToolCall("call_2", "add", "{}"),)),
}
KEPT = {
    "exact": ["as it was"],
    "noise": ["as it was", "white space", "think tags", "JSON"],
    "ids": ["as it was", "white space", "think tags", "JSON", "words dropped"],
}


@pytest.mark.parametrize("how", ["exact", "noise", "ids"])
def test_each_degree_recognises_what_it_promises_and_no_more(how: HistoryMatch) -> None:
    tokenizer = build_tokenizer()
    renderer = Renderer(tokenizer, [int(tokenizer.eos_token_id or 0)])
    call, first = ProgramCall(history=how), (Message("user", "Add 1 and 2."),)
    recalled = Memory().recall(renderer, first, call)
    sample = Sample("s", recalled.prompt.ids, renderer.encode_reply("What was sampled."), (), (), "What was sampled.")
    memory = Memory().remember(recalled, call, SAID, renderer, sample)
    found = {}
    for name, back in BACK.items():
        again = memory.recall(renderer, (*first, back, Message("user", "And now?")), call)
        found[name] = again.history
        if again.history == "kept":  # the ids that were sampled, whatever the program made of their text
            known = sample.prompt + sample.action
            assert again.prompt.ids[: len(known)] == known and again.prompt.extends == "s"
    assert [name for name, history in found.items() if history == "kept"] == KEPT[how]
    assert {history for name, history in found.items() if name not in KEPT[how]} == {"foreign"}


def test_much_white_space_is_compared_at_once() -> None:
    """A program may send anything back. If the time grew with the square of the length, this would take a minute.
    The seconds are of this process, so that other work on the machine does not count."""
    began = time.process_time()
    long, short = (Message("assistant", f"<think>y{space}x") for space in (" " * 50_000, " "))
    assert told(long, "noise") == told(short, "noise")
    assert time.process_time() - began < 5


def test_calls_of_one_reply_are_sent_together_unless_the_program_wants_one() -> None:
    tool = json.dumps({"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}})
    text = "".join(f'<tool_call>{{"name": "add", "arguments": {{"a": {n}}}}}</tool_call>' for n in (1, 2))
    both = spoken_in(Hermes(), text, ProgramCall((tool,)), "s").calls
    assert [json.loads(c.arguments) for c in both] == [{"a": 1}, {"a": 2}]
    assert len({c.id for c in both}) == 2, "a result names its call by this id"
    assert spoken_in(Hermes(), text, ProgramCall((tool,), parallel=False), "s").calls == both[:1]
