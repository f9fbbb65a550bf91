"""The server that programs ask: what every kind of request is answered, and what is refused."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import openai
import pytest

from interplay.envs.programs.gateway import HttpRun
from interplay.envs.programs.http import _Chunks
from interplay.envs.programs.options import OutsideOptions
from interplay.envs.programs.run import Inquiry, Reply
from interplay.types import Spoken, ToolCall

TOOL = {
    "type": "function",
    "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}},
}
YES_NO = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}


class Served:
    """A session whose calls are answered by `reply` as they come, in the order of their digests."""

    def __init__(self, reply: Callable[[Inquiry], Reply], **options: Any) -> None:
        made = {"function": "none:none", "reward": "none:none", "roles": ["planner", "solver"], **options}
        self.run = HttpRun(OutsideOptions.model_validate(made))
        self.reply, self.asked = reply, list[Inquiry]()
        self.thread = threading.Thread(target=self._answer, daemon=True)
        self.thread.start()
        self.client = openai.OpenAI(base_url=self.run.url, api_key="unused", max_retries=0)

    def _answer(self) -> None:
        while not self.run.ended:
            self.run.settle_now()
            for question in sorted(self.run.waiting, key=lambda q: q.digest):
                self.asked.append(question)
                self.run.answer(question, self.reply(question))

    def close(self) -> None:
        self.run.close()
        self.thread.join(60)

    def raw(self, path: str, body: bytes = b"{}", **headers: str) -> tuple[int, dict[str, Any]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.run.gateway.port)
        connection.request("POST", f"/s/{self.run.key}/v1/{path}", body, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def says(text: str = "hello", **rest: Any) -> Reply:
    return Reply(Spoken(text, **rest), False, 7, 3, (-0.5, -0.25, -0.125))


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    made: list[Served] = []

    def start(reply: Callable[[Inquiry], Reply] = lambda q: says(), **options: Any) -> Served:
        made.append(Served(reply, **options))
        return made[-1]

    yield start
    for one in made:
        one.close()


def ask(served: Served, **body: Any) -> Any:
    given = {"model": "planner", "messages": [{"role": "user", "content": "hi"}], **body}
    return served.client.chat.completions.create(**given)


def test_a_chat_completion_has_words_usage_and_a_reason_to_end(serve: Any) -> None:
    served = serve()
    found = ask(served, model="openai/planner", temperature=0.1, seed=3, user="me")
    assert found.choices[0].message.content == "hello"
    assert found.choices[0].finish_reason == "stop"
    assert (found.usage.prompt_tokens, found.usage.completion_tokens) == (7, 3)
    assert served.asked[0].role == "planner"
    cut = ask(serve(lambda q: Reply(Spoken("hel"), cut=True)))
    assert cut.choices[0].finish_reason == "length"


def test_a_stream_holds_what_the_whole_answer_holds(serve: Any) -> None:
    calls = (ToolCall("call_1", "add", '{"a": 1}'),)
    served = serve(lambda q: says("words", calls=calls))
    whole = ask(served, tools=[TOOL])
    words, named, arguments, ends, tokens = "", "", "", [], None
    for chunk in ask(served, tools=[TOOL], stream=True, stream_options={"include_usage": True}):
        if chunk.usage:
            tokens = chunk.usage.completion_tokens
        for choice in chunk.choices:
            words += choice.delta.content or ""
            for call in choice.delta.tool_calls or ():
                named += f"{call.id} {call.function.name}"
                arguments += call.function.arguments
            ends += [choice.finish_reason] if choice.finish_reason else []
    message = whole.choices[0].message
    assert (words, arguments) == (message.content, message.tool_calls[0].function.arguments)
    assert (named, ends, tokens) == ("call_1 add", ["tool_calls"], 3)


def test_what_the_program_wants_reaches_the_seat(serve: Any) -> None:
    served = serve()
    ask(served, tools=[TOOL], stop=["\n", "END"], max_tokens=5, parallel_tool_calls=False, metadata={"phase": "plan"})
    (question,) = served.asked
    call = question.call
    assert json.loads(call.tools[0]) == TOOL
    assert (call.stop, call.max_tokens, call.parallel, question.phase) == (("\n", "END"), 5, False, "plan")
    ask(served, tools=[TOOL], tool_choice="none")
    assert served.asked[-1].call.tools == ()


def test_n_answers_are_n_questions(serve: Any) -> None:
    count = iter(range(10))
    served = serve(lambda q: says(f"number {next(count)}"))
    found = ask(served, n=3)
    assert sorted(c.message.content for c in found.choices) == ["number 0", "number 1", "number 2"]
    assert len({q.digest for q in served.asked}) == 1


def test_logprobs_are_those_of_the_sampled_tokens(serve: Any) -> None:
    found = ask(serve(lambda q: says("abc", pieces=("a", "b", "c"))), logprobs=True)
    rows = found.choices[0].logprobs.content
    assert [(r.token, r.logprob) for r in rows] == [("a", -0.5), ("b", -0.25), ("c", -0.125)]


def test_a_name_stands_before_a_users_words_and_parts_are_joined(serve: Any) -> None:
    served = serve()
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
    ask(served, messages=[{"role": "developer", "content": "rules"}, {"role": "user", "name": "bob", "content": parts}])
    assert [(m.role, m.content) for m in served.asked[0].messages] == [("system", "rules"), ("user", "bob: one two")]


def test_a_name_can_be_left_out(serve: Any) -> None:
    """`names = "drop"`, in both ways to ask. The words and the names of tools stay as they are."""
    served = serve(program={"names": "drop"})
    told = {"role": "user", "name": "bob", "content": "bob: is here"}
    ask(served, messages=[told])
    served.client.responses.create(model="planner", input=[told])
    assert [[m.content for m in asked.messages] for asked in served.asked] == [["bob: is here"]] * 2


def test_responses_go_on_from_the_one_before(serve: Any) -> None:
    calls = (ToolCall("call_1", "add", '{"a": 1}'),)
    served = serve(lambda q: says("", calls=calls) if len(q.messages) < 3 else says("done"))
    tool = {"type": "function", **TOOL["function"]}  # type: ignore[dict-item]
    client = served.client
    first = client.responses.create(model="solver", instructions="Add.", input="1 and 2", tools=[tool])
    (call,) = first.output
    assert (call.type, call.call_id, call.arguments) == ("function_call", "call_1", '{"a": 1}')
    result = {"type": "function_call_output", "call_id": "call_1", "output": "3"}
    after = client.responses.create(
        model="solver", instructions="Add.", input=[result], previous_response_id=first.id, tools=[tool]
    )
    assert after.output_text == "done"
    told = served.asked[1].messages
    assert [m.role for m in told] == ["system", "user", "assistant", "tool"]
    assert told[2].tool_calls == calls and told[3].content == "3"
    items = [{"role": "user", "content": "1 and 2"}, *[o.model_dump() for o in first.output], result]
    client.responses.create(model="solver", instructions="Add.", input=items, tools=[tool])
    assert served.asked[2].messages == told
    with pytest.raises(openai.BadRequestError, match=r"not known \(any more\)"):
        client.responses.create(model="solver", input="x", previous_response_id="resp_never")


def test_a_streamed_response_is_the_response(serve: Any) -> None:
    served = serve(lambda q: says("some words"))
    with served.client.responses.stream(model="solver", input="go") as stream:
        words = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert words == final.output_text == "some words"


def test_a_streamed_response_has_the_calls_of_the_response(serve: Any) -> None:
    served = serve(lambda q: says("words", calls=(ToolCall("call_1", "add", '{"a": 1}'),)))
    tool: Any = {"type": "function", **TOOL["function"]}  # type: ignore[dict-item]
    with served.client.responses.stream(model="solver", input="go", tools=[tool]) as stream:
        arguments = "".join(e.delta for e in stream if e.type == "response.function_call_arguments.delta")
        final = stream.get_final_response()
    whole = served.client.responses.create(model="solver", input="go", tools=[tool])
    for found in (final, whole):
        message, call = found.output
        assert message.content[0].text == "words"
        assert (call.call_id, call.name, call.arguments) == ("call_1", "add", arguments)
    assert arguments == '{"a": 1}'


NODE = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}, "required": ["next"]}


@pytest.mark.parametrize(
    "wrong",
    [
        {"tools": "add"},
        {"tools": [5]},
        {"tools": [{"type": "function", "function": {"name": "add", "parameters": [1]}}]},
        {"tools": [{"type": "function", "function": {"name": "add", "parameters": {"properties": [1]}}}]},
        {"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": "x"}]}]},
        {"messages": [{"role": "assistant", "content": "x", "tool_calls": 5}]},
        {"response_format": "json"},
        {"stream_options": "usage"},
        {"top_logprobs": "many"},
        {"guided_choice": 5},
        {"guided_choice": ["x"] * 1025},
        {"stop": ["x"] * 65},
        {"n": 0},
        {"n": True},
        {"max_tokens": True},
        {"max_completion_tokens": 0},
        {"functions": [{"name": "add", "parameters": {}}]},
        {"function_call": {"name": "add"}},
        {"logit_bias": {"7": 100}},
        {"tool_choice": "required"},
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "other"}}},
        {"response_format": {"type": "grammar"}},
        {"messages": [{"role": ["user"], "content": "x"}]},
        {"messages": [{"role": "user", "content": ""}] * 10_001},
        {"response_format": {"type": "json_schema", "json_schema": {"strict": True, "schema": {"enum": []}}}},
        {"response_format": {"type": "json_schema", "json_schema": {"strict": True, "schema": {"enum": 5}}}},
        {"response_format": {"type": "json_schema", "json_schema": {
            "strict": True, "schema": {"$defs": {"node": NODE}, "$ref": "#/$defs/node"},
        }}},
    ],
)  # fmt: skip
def test_a_request_of_another_form_is_answered_with_a_sentence(serve: Any, wrong: dict[str, Any]) -> None:
    """A lost connection would be retried, and nobody would know why."""
    served = serve()
    body = {"model": "planner", "messages": [{"role": "user", "content": "hi"}], **wrong}
    status, found = served.raw("chat/completions", json.dumps(body).encode())
    assert status == 400 and found["error"]["message"].endswith((".", "base64,…"))
    status, found = served.raw("responses", json.dumps({"model": "planner", "input": 5}).encode())
    assert status == 400 and "format of responses" in found["error"]["message"]
    assert not served.asked


@pytest.mark.parametrize("field", ["conversation", "prompt", "background"])
def test_what_would_change_a_response_is_refused_and_not_ignored(serve: Any, field: str) -> None:
    """Without the conversation that it names, a model would answer something else, and nobody would know why."""
    status, found = serve().raw("responses", json.dumps({"model": "planner", "input": "x", field: "y"}).encode())
    assert status == 400 and found["error"]["message"].startswith(f"{field} is not served here; expected ")


def _nested(part: Callable[[dict[str, str]], dict[str, Any]], last: Any) -> dict[str, Any]:
    """A schema of 40 parts, each of which names the next one twice."""
    parts = {f"a{n}": part({"$ref": f"#/$defs/a{n + 1}"}) for n in range(40)}
    return {"$ref": "#/$defs/a0", "$defs": {**parts, "a40": {"const": last}}}


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (_nested(lambda one: {"anyOf": [one, one]}, 1), "the schema allows"),
        (_nested(lambda one: {"type": "object", "properties": {"l": one, "r": one}}, 1), "1,000,000 characters"),
        ({"type": "object", "properties": {f"p{n}": {"$ref": "#/$defs/a"} for n in range(100)},
          "$defs": {"a": {"const": "x" * 100_000}}}, "1,000,000 characters"),
    ],
)  # fmt: skip
def test_a_small_schema_with_endless_answers_is_refused_at_once(serve: Any, schema: dict[str, Any], why: str) -> None:
    """A program may send what a model wrote, and the gateway answers all programs of a run in one thread."""
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}
    with pytest.raises(openai.BadRequestError, match=why):
        ask(serve(), response_format=form)


def test_half_a_character_anywhere_in_a_request_becomes_a_question_mark(serve: Any) -> None:
    """No tokenizer can read it. JSON in ASCII writes whole characters as two halves, and these stay as they are."""
    served = serve()
    half = {"type": "function", "function": {"name": "f", "description": "a\ud800b\U0001f600", "parameters": {}}}
    body = {"model": "planner", "messages": [{"role": "user", "content": "x"}], "tools": [half]}
    status, _ = served.raw("chat/completions", json.dumps({**body, "guided_choice": ["\udfff", "y"]}).encode())
    assert status == 200
    assert json.loads(served.asked[0].call.tools[0])["function"]["description"] == "a?b\U0001f600"
    assert [one.content for one in served.asked[0].call.only] == ["?", "y"]


def test_a_record_or_a_length_of_another_form_is_answered_with_a_sentence(serve: Any) -> None:
    served = serve()
    status, found = served.raw("effects", b'{"name": "pay", "arguments": [], "recorded": 5}')
    assert status == 400 and found["error"]["message"].startswith("recorded is a int; expected an object")
    with socket.create_connection(("127.0.0.1", served.run.gateway.port)) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\ncontent-length: " + b"9" * 5000 + b"\r\n\r\n")
        assert b"expected a number of at most 20 digits" in connection.recv(10_000)


def test_roles_are_models_or_patterns_of_model_and_system_prompt(serve: Any) -> None:
    route = {"planner": {"model": "gpt-4*", "system": "You plan*"}, "solver": {"model": "gpt-4*"}}
    served = serve(route=route)
    for system in ("You plan things.", "You solve."):
        ask(served, model="gpt-4o", messages=[{"role": "system", "content": system}, {"role": "user", "content": "x"}])
    assert [q.role for q in served.asked] == ["planner", "solver"]
    assert [m.id for m in served.client.models.list()] == ["planner", "solver"]
    with pytest.raises(openai.BadRequestError, match=r"model 'other' is no role; known: planner, solver"):
        ask(served, model="other")


def test_what_can_be_listed_is_enforced_and_the_rest_is_refused(serve: Any) -> None:
    served = serve()
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": YES_NO, "strict": True}}
    ask(served, response_format=form)
    assert [s.content for s in served.asked[-1].call.only] == ['{"ok": true}', '{"ok": false}']
    done = {"type": "function", "function": {"name": "done", "parameters": {"type": "object", "properties": {}}}}
    ask(served, tools=[done], tool_choice="required")
    assert [s.calls[0].name for s in served.asked[-1].call.only] == ["done"]
    free = {"type": "object", "properties": {"why": {"type": "string"}}}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": free, "strict": True}}
    with pytest.raises(openai.BadRequestError, match="'why' allows any string"):
        ask(served, response_format=form)
    with pytest.raises(openai.BadRequestError, match="can be enforced only if every call can be listed"):
        ask(served, tools=[TOOL], tool_choice={"type": "function", "function": {"name": "add"}})
    with pytest.raises(openai.BadRequestError, match="json_object"):
        ask(served, response_format={"type": "json_object"})
    form["json_schema"]["strict"] = False  # type: ignore[index]
    ask(served, response_format=form)
    assert served.asked[-1].call.only == ()


def test_beside_a_strict_schema_the_tools_can_still_be_called(serve: Any) -> None:
    """An answer in the schema is what a model says when it has called its tools."""
    served = serve()
    done = {"type": "function", "function": {"name": "done", "parameters": {"type": "object", "properties": {}}}}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": [1, 2]}, "strict": True}}
    ask(served, tools=[done], response_format=form)
    assert [one.content or one.calls[0].name for one in served.asked[-1].call.only] == ["1", "2", "done"]
    ask(served, tools=[done], tool_choice="none", response_format=form)
    assert [one.content for one in served.asked[-1].call.only] == ["1", "2"]
    with pytest.raises(openai.BadRequestError, match=r"may call 'add', which can be enforced only if .* 'none'"):
        ask(served, tools=[TOOL], response_format=form)


def test_all_calls_that_can_be_required_are_counted_together(serve: Any) -> None:
    number = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1, "maximum": 600}}}
    tools = [{"type": "function", "function": {"name": name, "parameters": number}} for name in ("one", "two")]
    with pytest.raises(openai.BadRequestError, match=r"'two', and with it more than 1,024 replies would be allowed"):
        ask(serve(), tools=tools, tool_choice="required")


def test_a_prompt_that_is_too_long_is_a_bad_request_with_its_code(serve: Any) -> None:
    served = serve(lambda q: Reply(Spoken("", refused="the prompt has 9,000 tokens.")))
    with pytest.raises(openai.BadRequestError) as error:
        ask(served)
    assert error.value.code == "context_length_exceeded"


def test_a_key_is_dead_when_its_episode_has_ended(serve: Any) -> None:
    """A late call is told so, also when the episode is not needed any more."""
    served = serve()
    ask(served)
    served.run.finish("result")
    served.thread.join(60)
    for _ in range(2):
        with pytest.raises(openai.APIStatusError) as error:
            ask(served)
        assert error.value.status_code == 410
        assert error.value.response.headers["x-should-retry"] == "false"
        served.run.close()
    status, _ = served.raw("effects", b'{"name": "pay"}')
    assert status == 410


def test_strangers_web_pages_and_large_bodies_are_refused(serve: Any) -> None:
    served = serve()
    assert served.raw("chat/completions", Origin="http://evil.example")[0] == 403
    assert served.raw("chat/completions", Host="evil.example:80")[0] == 403
    assert served.raw("chat/completions", b"[1]")[0] == 400
    assert served.raw("chat/completions", b"{")[0] == 400
    assert served.raw("nothing")[0] == 404
    port = served.run.gateway.port
    with closing(socket.create_connection(("127.0.0.1", port))) as raw:
        raw.sendall(b"POST /v1/x HTTP/1.1\r\ncontent-length: 9000000\r\n\r\n")
        assert b" 413 " in raw.recv(1000)
    status, found = served.raw("chat/completions", b"x" * 50_000_000)
    assert status == 413, "the client can send all of it before it reads the answer"
    assert found["error"]["message"] == "the body has 50,000,000 bytes; at most 8,388,608 are read."
    other = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="guess", max_retries=0)
    with pytest.raises(openai.AuthenticationError):
        other.models.list()
    right = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=served.run.key, max_retries=0)
    assert len(right.models.list().data) == 2


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_a_body_in_chunks_is_read_as_it_arrives(piece: int) -> None:
    """No chunk is read twice: a program that sends many small ones would stop the server for all others."""
    chunks, waiting, longest, body = _Chunks(), bytearray(), 0, None
    sent = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (b"ab", b"c" * 20, b"\r\n") * 50) + b"0\r\n\r\n"
    for at in range(0, len(sent), piece):
        assert body is None
        waiting += sent[at : at + piece]
        body = chunks.taken(waiting)
        longest = max(longest, len(waiting))
    assert body == (b"ab" + b"c" * 20 + b"\r\n") * 50
    assert not waiting and longest < 30, "only a chunk that is not complete waits"


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (b"-5\r\nabc", "400 .*a chunk has no size"),
        (b"\r\nabc", "400 .*a chunk has no size"),
        (b"5" * 2000, "400 .*the size of a chunk is longer than 1,024 bytes"),
        (b"1\r\na\r\n800000\r\n", "413 .*the body is larger than 8,388,608 bytes"),
    ],
)
def test_chunks_that_cannot_be_read_are_refused_with_a_sentence(serve: Any, sent: bytes, words: str) -> None:
    served = serve()
    with closing(socket.create_connection(("127.0.0.1", served.run.gateway.port))) as raw:
        raw.settimeout(60)
        raw.sendall(b"POST /v1/x HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n" + sent)
        found = b""
        while piece := raw.recv(1000):
            found += piece
    assert re.search(words, found.decode(), re.S)


def test_a_retry_joins_the_call_in_flight_and_equal_calls_stay_apart(serve: Any) -> None:
    """The first connection is lost before the answer; the client sends the same again, and says so."""
    ready = threading.Event()

    def slowly(question: Inquiry) -> Reply:
        ready.wait(60)
        return says("once")

    served = serve(slowly)
    body = json.dumps({"model": "planner", "messages": [{"role": "user", "content": "hi"}]}).encode()
    head = f"POST /s/{served.run.key}/v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{served.run.gateway.port}\r\n"
    lost = socket.create_connection(("127.0.0.1", served.run.gateway.port))
    lost.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    while not served.asked:
        time.sleep(0.01)
    lost.close()
    while served.run._calls[0].waiter is not None:  # the server has not noticed it yet
        time.sleep(0.01)
    threading.Timer(0.2, ready.set).start()
    status, found = served.raw("chat/completions", body, **{"x-stainless-retry-count": "1"})
    assert (status, found["choices"][0]["message"]["content"]) == (200, "once")
    assert len(served.asked) == 1
    with ThreadPoolExecutor(2) as two:
        list(two.map(lambda _: ask(served), range(2)))
    assert len(served.asked) == 3


def test_embeddings_are_passed_on_to_the_users_server(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that repeats the key that it was sent does not show it to the program, and one that answers with too
    much is refused."""
    monkeypatch.setenv("INTERPLAY_EMBEDDINGS_KEY", "sk-1234567890abcdef")

    class Vectors(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            row = {"embedding": [1.0, 2.0], "index": 0}
            data = json.dumps({"data": [row], "model": self.headers["authorization"]}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Vectors) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        served = serve(program={"embeddings": f"http://127.0.0.1:{server.server_port}/v1"})
        found = served.client.embeddings.create(model="any", input="x", encoding_format="float")
        assert found.data[0].embedding == [1.0, 2.0]
        assert found.model == "Bearer [key]"
        monkeypatch.setattr("interplay.envs.programs.server._MOST_EMBEDDED", 20)
        assert served.raw("embeddings")[0] == 502
        server.shutdown()
    assert serve().raw("embeddings")[0] == 404


def test_a_thousand_sessions_are_open_at_once() -> None:
    """Each has a call that waits before any is answered."""
    options = OutsideOptions.model_validate({"function": "x:y", "reward": "x:y", "roles": ["planner"]})
    runs = [HttpRun(options) for _ in range(1024)]
    body = json.dumps({"model": "planner", "messages": [{"role": "user", "content": "hi"}]}).encode()
    lines = []
    try:
        for run in runs:
            raw = socket.create_connection(("127.0.0.1", run.gateway.port))
            host = f"host: 127.0.0.1:{run.gateway.port}"
            head = f"POST /s/{run.key}/v1/chat/completions HTTP/1.1\r\n{host}\r\ncontent-length: {len(body)}\r\n\r\n"
            raw.sendall(head.encode() + body)
            lines.append(raw)
        for run in runs:
            run.settle_now()
            assert len(run.waiting) == 1
        for n, run in enumerate(runs):
            run.answer(run.waiting[0], says(f"to {n}"))
        for n, raw in enumerate(lines):
            answer = b""
            while b'"usage"' not in answer:
                answer += raw.recv(1 << 16)
            assert f'"to {n}"'.encode() in answer
    finally:
        for raw in lines:
            raw.close()
        for run in runs:
            run.close()
