"""Players: looking and sampling change no state, committing does, and all random numbers depend on the stamp."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from interplay.agents.bots import make_bot
from interplay.agents.model import ModelAgent
from interplay.agents.player import Stamp
from interplay.agents.render import Prompt, Renderer
from interplay.agents.scripted import BotAgent
from interplay.engines.engine import Capabilities, Request, Sampling
from interplay.envs import make, sample_task
from interplay.models.tiny import build_tokenizer
from interplay.types import KEY_NAMES, Completion, MediaSpan, Message, Observation, Status, Stop, Task, Turn

TOKENIZER = build_tokenizer()
END = TOKENIZER.eos_token_id
TASK = sample_task("tictactoe", {})
STAMP = Stamp(seed=1, task=TASK, replica=2, episode="e", decision=3)


@dataclass
class FakeEngine:
    """Says a letter that depends on the seed, and records its requests."""

    asked: list[Request] = field(default_factory=list)
    stop: Stop = Stop.END
    version: int = 5
    capabilities: Capabilities = field(default_factory=lambda: Capabilities(True, True))

    async def generate(self, request: Request) -> Completion:
        self.asked.append(request)
        letter = TOKENIZER.convert_tokens_to_ids(chr(ord("a") + request.seed % 26))
        tokens = (letter, END) if self.stop is Stop.END else (letter, letter)
        return Completion(tokens, (-1.0, -0.5), (self.version,) * 2, self.stop)

    def flush(self) -> None: ...
    def close(self) -> None: ...


def seat(role: str = "X", engine: FakeEngine | None = None) -> ModelAgent:
    renderer = Renderer(TOKENIZER, [END])
    return ModelAgent(role, "player", True, engine or FakeEngine(), renderer, Sampling(0.8, 7, (END,)))


def sees(text: str, fresh: bool = False, phase: str = "") -> Observation:
    return Observation((Message("user", text),), fresh=fresh, phase=phase)


def sample(agent: Any, view: Any, stamp: Stamp = STAMP) -> Turn:
    return asyncio.run(agent.sample(make(TASK), view, stamp))


def state(agent: ModelAgent) -> tuple[Any, ...]:
    return agent.history, agent.said, agent.parent


def test_drawing_candidates_remembers_nothing_and_committing_one_does() -> None:
    agent = seat()
    view = agent.look(sees("one"))
    before = state(agent)
    turns = [sample(agent, view, replace(STAMP, candidate=k)) for k in range(5)]
    assert state(agent) == before == ((), None, None)
    assert {t.last.prompt for t in turns} == {view.prompt.ids}  # type: ignore[union-attr]
    assert len({t.text for t in turns}) > 1
    agent.commit(view, turns[3])
    assert agent.history == (Message("user", "one"), Message("assistant", turns[3].text))
    after = agent.look(sees("two"))
    assert after.prompt is not None
    said = turns[3].last
    assert after.prompt.merged and after.prompt.extends == said.id
    assert after.prompt.ids[: len(said.prompt) + 2] == said.prompt + said.action
    following = sample(agent, after, replace(STAMP, decision=4))
    assert following.parent == turns[3].id
    assert following.last.extends == said.id
    assert following.observation.messages == following.last.messages == (Message("user", "two"),)


def test_looking_twice_shows_the_same() -> None:
    agent = seat()
    assert agent.look(sees("one")) == agent.look(sees("one"))
    assert agent.history == ()


def test_a_fork_goes_its_own_way() -> None:
    agent = seat()
    view = agent.look(sees("one"))
    agent.commit(view, sample(agent, view))
    before = state(agent)
    fork = agent.fork()
    assert state(fork) == before
    view = fork.look(sees("fork's"))
    fork.commit(view, sample(fork, view, replace(STAMP, decision=4)))
    assert state(agent) == before
    forked = state(fork)
    view = agent.look(sees("mine"))
    agent.commit(view, sample(agent, view, replace(STAMP, decision=5)))
    assert state(fork) == forked
    assert agent.history[:2] == fork.history[:2]
    assert agent.history[2:] != fork.history[2:]


def test_a_fresh_observation_is_the_whole_prompt() -> None:
    agent = seat()
    view = agent.look(sees("one"))
    agent.commit(view, sample(agent, view))
    fresh = agent.look(sees("anew", fresh=True))
    assert fresh.prompt == seat().look(sees("anew")).prompt
    assert fresh.messages == (Message("user", "anew"),)
    agent.commit(fresh, sample(agent, fresh))
    assert agent.history[0].content == "anew"
    assert agent.look(sees("then")).prompt.merged  # type: ignore[union-attr]


def test_a_turn_carries_what_was_sampled_and_its_keys() -> None:
    engine = FakeEngine()
    agent = seat("O", engine)
    view = agent.look(sees("one", phase="bidding"))
    turn = sample(agent, view, replace(STAMP, candidate=2, path=(1, 0, 4)))
    (request,) = engine.asked
    (drawn,) = turn.samples
    assert request.ids == drawn.prompt == view.prompt.ids  # type: ignore[union-attr]
    assert request.sampling == Sampling(0.8, 7, (END,))
    assert (drawn.action[-1], drawn.logprobs, drawn.versions) == (END, (-1.0, -0.5), (5, 5))
    assert (drawn.temperature, drawn.text, drawn.id) == (0.8, turn.text, turn.id)
    assert (turn.policy, turn.status, turn.observation) == ("player", Status.OK, view.observation)
    assert (turn.role, turn.decision, turn.candidate, turn.playout) == ("O", 3, 2, 4)
    digest = view.prompt.digest  # type: ignore[union-attr]
    assert turn.keys.pick(KEY_NAMES) == (TASK.id, 2, "e", 3, "O", "bidding", "", digest)
    other = seat("O").look(sees("two"))
    assert sample(seat("O"), other).keys.prompt != digest


def test_promise_12_pictures_in_a_prompt_go_to_the_engine_the_sample_and_the_keys() -> None:
    """Two prompts that differ only in a picture have different keys, so that no group contains both."""
    engine = FakeEngine()
    agent = seat(engine=engine)
    seen = agent.look(sees("one"))
    assert seen.prompt is not None
    spans = [(MediaSpan(1, 2, digest),) for digest in ("ca7", "d09")]
    turns = [sample(agent, replace(seen, prompt=Prompt(seen.prompt.ids, "", media=span))) for span in spans]
    assert [r.media for r in engine.asked] == [t.last.media for t in turns] == spans
    assert turns[0].asked == turns[1].asked and turns[0].keys.prompt != turns[1].keys.prompt


def test_a_reply_cut_by_the_limit_says_so() -> None:
    agent = seat(engine=FakeEngine(stop=Stop.LENGTH))
    view = agent.look(sees("one"))
    turn = sample(agent, view)
    assert turn.status is Status.LENGTH
    agent.commit(view, turn)
    assert agent.said is not None
    assert not agent.said.ended


CHANGES: dict[str, Any] = {
    "seed": 9,
    "task": Task("other", TASK.env, TASK.seed),
    "replica": 3,
    "decision": 4,
    "path": (1, 0, 0),
    "candidate": 1,
}


@pytest.mark.parametrize("changed", sorted(CHANGES))
def test_the_seed_is_a_function_of_the_stamp(changed: str) -> None:
    def asked(stamp: Stamp, role: str = "X") -> Request:
        engine = FakeEngine()
        agent = seat(role, engine)
        sample(agent, agent.look(sees("one")), stamp)
        return engine.asked[0]

    base, other = asked(STAMP), asked(replace(STAMP, **{changed: CHANGES[changed]}))
    assert base == asked(STAMP)
    assert base == asked(replace(STAMP, episode="a name of no consequence"))
    assert base.seed != other.seed
    assert base.key != other.key
    assert base.seed != asked(STAMP, role="O").seed


def test_the_ids_of_turns_are_unique_where_the_stamps_differ() -> None:
    stamps = [STAMP, *(replace(STAMP, **{n: CHANGES[n]}) for n in ("decision", "path", "candidate"))]
    agent = seat()
    view = agent.look(sees("one"))
    ids = [sample(agent, view, s).id for s in stamps] + [sample(seat("O"), view, s).id for s in stamps]
    assert len(set(ids)) == len(ids)


def test_a_bot_acts_like_an_agent_and_draws_its_random_numbers_from_the_stamp() -> None:
    agent = BotAgent("X", "bot:random", make_bot("random", "tictactoe"))
    env = make(TASK)
    view = agent.look(env.observe()["X"])
    moves = [sample(agent, view, replace(STAMP, candidate=k)) for k in range(30)]
    assert [m.text for m in moves] == [sample(agent, view, replace(STAMP, candidate=k)).text for k in range(30)]
    assert len({m.text for m in moves}) > 3
    assert not moves[0].is_model
    assert (moves[0].policy, moves[0].samples, moves[0].sampled) == ("bot:random", (), 0)
    assert moves[0].keys.pick(("task", "decision", "role")) == (TASK.id, 3, "X")
    fork = agent.fork()
    agent.commit(view, moves[0])
    assert (agent.parent, fork.parent) == (moves[0].id, None)
