"""Writes answers in the formats of the two APIs, as one object or as a stream.

A reply is sent when it is complete, and the text of a stream is in one piece. So frameworks that look for markers such
as `</think>` never find them cut in two.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from interplay.envs.programs.run import Reply
from interplay.envs.programs.wire import ChatOrder

JsonObject = dict[str, Any]


def finish(answer: Reply) -> str:
    return "tool_calls" if answer.spoken.calls else "length" if answer.cut else "stop"


def usage(answers: Sequence[Reply]) -> dict[str, int]:
    prompt, tokens = answers[0].prompt_tokens, sum(a.tokens for a in answers)
    return {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}


def _calls(answer: Reply, index: bool = False) -> list[JsonObject]:
    out = []
    for n, call in enumerate(answer.spoken.calls):
        one = {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        out.append({"index": n, **one} if index else one)
    return out


def _logprobs(answer: Reply) -> JsonObject:
    rows = [
        {"token": text, "logprob": value, "bytes": list(text.encode()), "top_logprobs": []}
        for text, value in zip(answer.spoken.pieces, answer.logprobs, strict=False)
    ]
    return {"content": rows, "refusal": None}


def chat_answer(order: ChatOrder, name: str, answers: Sequence[Reply]) -> JsonObject:
    choices = []
    for n, answer in enumerate(answers):
        calls = _calls(answer)
        content: str | None = answer.spoken.content
        message: JsonObject = {"role": "assistant", "content": content if content or not calls else None}
        if calls:
            message["tool_calls"] = calls
        choice: JsonObject = {"index": n, "message": message, "finish_reason": finish(answer), "logprobs": None}
        if order.call.logprobs:
            choice["logprobs"] = _logprobs(answer)
        choices.append(choice)
    head = {"id": f"chatcmpl-{name}", "object": "chat.completion", "created": 0, "model": order.model}
    return {**head, "choices": choices, "usage": usage(answers)}


def chat_chunks(order: ChatOrder, name: str, answers: Sequence[Reply]) -> Iterator[str]:
    """Server-sent events of a streamed chat completion."""
    head = {"id": f"chatcmpl-{name}", "object": "chat.completion.chunk", "created": 0, "model": order.model}

    def chunk(n: int, delta: JsonObject, **rest: Any) -> str:
        choice = {"index": n, "delta": delta, "finish_reason": None, **rest}
        return f"data: {json.dumps({**head, 'choices': [choice]})}\n\n"

    for n, answer in enumerate(answers):
        yield chunk(n, {"role": "assistant", "content": ""})
        if answer.spoken.content:
            extra = {"logprobs": _logprobs(answer)} if order.call.logprobs else {}
            yield chunk(n, {"content": answer.spoken.content}, **extra)
        if calls := _calls(answer, index=True):
            yield chunk(n, {"tool_calls": calls})
        yield chunk(n, {}, finish_reason=finish(answer))
    if order.usage:
        yield f"data: {json.dumps({**head, 'choices': [], 'usage': usage(answers)})}\n\n"
    yield "data: [DONE]\n\n"


# -- responses --------------------------------------------------------------------------------------------------------


def _output(name: str, answer: Reply) -> list[JsonObject]:
    out: list[JsonObject] = []
    if answer.spoken.content or not answer.spoken.calls:
        text = {"type": "output_text", "text": answer.spoken.content, "annotations": []}
        out.append(
            {"type": "message", "id": f"msg_{name}", "role": "assistant", "status": "completed", "content": [text]}
        )
    for n, call in enumerate(answer.spoken.calls):
        item = {"type": "function_call", "id": f"fc_{name}_{n}", "call_id": call.id, "status": "completed"}
        out.append({**item, "name": call.name, "arguments": call.arguments})
    return out


def response(order: ChatOrder, name: str, answer: Reply) -> JsonObject:
    cut = answer.cut and not answer.spoken.calls
    tokens = {"input_tokens": answer.prompt_tokens, "output_tokens": answer.tokens}
    return {
        "id": f"resp_{name}",
        "object": "response",
        "created_at": 0,
        "model": order.model,
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "error": None,
        "output": _output(name, answer),
        "parallel_tool_calls": order.call.parallel,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            **tokens,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": sum(tokens.values()),
        },
    }


def response_events(order: ChatOrder, name: str, answer: Reply) -> Iterator[str]:
    """Server-sent events of a streamed response."""
    whole = response(order, name, answer)
    number = iter(range(1 << 30))

    def event(kind: str, **rest: Any) -> str:
        data = {"type": f"response.{kind}", "sequence_number": next(number), **rest}
        return f"event: response.{kind}\ndata: {json.dumps(data)}\n\n"

    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    yield event("created", response=begun)
    yield event("in_progress", response=begun)
    for at, item in enumerate(whole["output"]):
        here = {"item_id": item["id"], "output_index": at}
        if item["type"] == "message":
            part = item["content"][0]
            yield event("output_item.added", output_index=at, item={**item, "content": [], "status": "in_progress"})
            inner = {**here, "content_index": 0}
            yield event("content_part.added", **inner, part={**part, "text": ""})
            yield event("output_text.delta", **inner, delta=part["text"], logprobs=[])
            yield event("output_text.done", **inner, text=part["text"], logprobs=[])
            yield event("content_part.done", **inner, part=part)
        else:
            yield event("output_item.added", output_index=at, item={**item, "arguments": "", "status": "in_progress"})
            yield event("function_call_arguments.delta", **here, delta=item["arguments"])
            yield event("function_call_arguments.done", **here, name=item["name"], arguments=item["arguments"])
        yield event("output_item.done", output_index=at, item=item)
    yield event("incomplete" if whole["status"] == "incomplete" else "completed", response=whole)
