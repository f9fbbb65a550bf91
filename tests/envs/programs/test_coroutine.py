"""Programs in this process: what waits together, whose crash it is, what a fork repeats, what is remembered."""

from __future__ import annotations

import asyncio
import gc
import importlib
import re
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from interplay import envs
from interplay.agents.player import Stamp
from interplay.algorithms import Independent, Tree
from interplay.envs.check import check
from interplay.envs.programs import coroutine, counts, replay
from interplay.envs.programs.program import OutsideProgram
from interplay.envs.programs.wire import chat_order
from interplay.errors import ConfigError, EnvError
from interplay.rollout.records import from_json, to_json
from interplay.types import Observation, Task

Make = Callable[..., list[Task]]


def played(task: Task, *said: dict[str, str]) -> OutsideProgram:
    env = envs.make(task)
    assert isinstance(env, OutsideProgram)
    for actions in said:
        assert set(env.observe()) == set(actions)
        env.step(actions)
    return env


def test_a_program_asks_its_roles_and_its_result_is_rewarded(program: Make) -> None:
    (task,) = program("small_teams:two")
    env = played(task, {"planner": "go"})
    seen = env.observe()
    assert [m.content for m in seen["solver"].messages] == ["Solve.", "go"]
    assert played(task).observe()["planner"].phase == "plan"
    env.step({"solver": "done"})
    assert env.observe() == {}
    (reward,) = envs.outcome_of(env)
    assert (reward.name, reward.value) == ("score", 7.0)


def test_calls_of_one_role_are_answered_in_an_order_of_their_own(program: Make) -> None:
    """Whichever came first: by what they ask."""
    (task,) = program("small_teams:many_of_one_role")
    env = envs.make(task)
    order = []
    while seen := env.observe():
        order.append(seen["planner"].messages[0].content)
        env.step({"planner": order[-1]})
    assert sorted(order) == ["Part 1", "Part 2", "Part 3"]
    digests = {q: n for n, q in enumerate(order)}
    again = envs.make(task)
    assert digests[again.observe()["planner"].messages[0].content] == 0
    assert isinstance(env, OutsideProgram) and env._run is not None
    assert env._run.result == ["Part 3", "Part 1", "Part 2"]


def test_calls_that_need_no_answer_to_be_made_wait_together(program: Make) -> None:
    """However many steps or threads a branch of the program takes before it asks."""
    (task,) = program("small_teams:slow_branch")
    assert set(envs.make(task).observe()) == {"planner", "solver"}


def test_a_crash_that_happens_again_in_the_replay_is_a_reward_of_the_policy(program: Make) -> None:
    (task,) = program("small_teams:crashes_on_a")
    env = played(task, {"planner": "abc"})
    assert env.observe() == {}
    (reward,) = envs.outcome_of(env)
    assert (reward.name, reward.value) == ("crashed", -0.1)
    assert "ValueError at " in env.state() and "small_teams.py:" in env.state()
    fine = played(task, {"planner": "xyz"})
    assert fine.observe() == {}
    assert [r.name for r in envs.outcome_of(fine)] == ["score"]


@pytest.mark.parametrize(
    ("said", "kind"), [("exit", "SystemExit"), ("exit in a task", "SystemExit"), ("cancel", "CancelledError")]
)
def test_a_program_that_exits_or_cancels_itself_crashes_alone(program: Make, said: str, kind: str) -> None:
    """asyncio passes such errors on to whoever runs the loop. They must not end the trainer or its tasks."""
    (task,) = program("small_teams:leaves_as_told")
    env = played(task, {"planner": said})

    async def settled() -> None:
        await asyncio.gather(asyncio.ensure_future(env.settle()))

    asyncio.run(settled())
    assert env.observe() == {} and f"{kind} at " in env.state()
    assert [(r.name, r.value) for r in envs.outcome_of(env)] == [("crashed", -0.1)]


def test_a_crash_before_the_first_call_or_that_does_not_happen_again_is_an_error(program: Make) -> None:
    (task,) = program("small_teams:crashes_at_once")
    with pytest.raises(EnvError, match=r"before it asked anything: KeyError at .*small_teams.py"):
        envs.make(task).observe()
    (task,) = program("small_teams:crashes_once")
    env = played(task, {"planner": "x"})
    with pytest.raises(EnvError, match="not again when it got the same answers: OSError"):
        env.observe()


def test_a_program_that_can_never_go_on_is_a_limit_and_not_a_hang(program: Make, players: Any) -> None:
    (episode,) = players.play(program("small_teams:waits_for_nothing"))
    assert episode.error is not None and "never comes" in episode.error


def test_a_program_that_takes_too_long_after_a_reply_is_replayed_like_one_that_crashes(program: Make) -> None:
    (task,) = program("small_teams:dawdles_on_a", how={"seconds": 1.0})  # a busy machine may pause it for a while
    env = played(task, {"planner": "abc"})
    assert env.observe() == {} and "Timeout" in env.state()
    assert [(r.name, r.value) for r in envs.outcome_of(env)] == [("crashed", -0.1)]
    fine = played(task, {"planner": "xyz"})
    assert fine.observe() == {} and [r.name for r in envs.outcome_of(fine)] == ["score"]


def test_a_replay_that_asks_for_something_else_has_diverged(program: Make) -> None:
    (task,) = program("small_teams:never_the_same")
    counts.take()
    env = played(task, {"planner": "x"})
    env.observe()
    twin = env.fork()
    with pytest.raises(EnvError, match=r"message 0 to planner was 'Run number .*' and is now 'Run number"):
        twin.observe()
    assert counts.take()["program/diverged"] == 1


def test_a_tree_of_a_program_that_diverges_too_often_is_refused(
    program: Make, players: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "_tally", replay._Tally())
    monkeypatch.setattr(replay, "ENOUGH", 4)
    with pytest.raises(ConfigError, match=r"replays of the program diverged.*independent episodes"):
        players.play(program("small_teams:never_the_same", tasks=4), Tree(2, "playout"))


def test_a_program_with_effects_is_not_replayed(program: Make) -> None:
    (task,) = program("small_teams:two", how={"effects": True})
    env = played(task, {"planner": "x"})
    with pytest.raises(ConfigError, match="effects"):
        env.fork().observe()


def test_equal_calls_are_sampled_apart_and_the_same_in_every_run(program: Make, players: Any) -> None:
    """Their random numbers count how often the same was asked."""
    tasks = program("small_teams:repeats")
    first, again = (players.play(tasks, Independent(2)) for _ in range(2))
    actions = [[t.last.action for t in e.turns] for e in first]
    assert actions == [[t.last.action for t in e.turns] for e in again]
    assert all(len(set(said)) > 1 for said in actions)
    assert actions[0] != actions[1]


def test_limits_stops_and_lists_of_the_program_hold_for_what_is_sampled(program: Make, players: Any) -> None:
    (episode,) = players.play(program("small_teams:limited"))
    assert episode.error is None
    short, cut, listed = (turn for turn in episode.turns)
    assert len(short.last.action) == 2 and short.status.value == "length"
    assert not any(c.isalnum() or c == " " for c in cut.spoken.content)
    assert listed.text in ("left", "right")
    assert len(listed.last.mask) == 2 and listed.last.action in listed.last.mask, "the learner rebuilds the mask"


def test_a_required_tool_call_is_the_only_thing_that_can_be_sampled(players: Any) -> None:
    """Over all that a tiny model might say, and with the arguments that the tool allows."""
    way = {"type": "object", "properties": {"way": {"enum": ["left", "right"]}}, "required": ["way"]}
    tool = {"type": "function", "function": {"name": "turn", "parameters": way}}
    body = {"model": "a", "messages": [{"role": "user", "content": "Go."}], "tools": [tool], "tool_choice": "required"}
    order = chat_order(body, "prefix", "noise")

    async def said(number: int) -> Any:
        agent = players.seated(["a"]).players["a"]
        agent.sampling = replace(agent.sampling, max_tokens=32)
        view = agent.look(Observation(order.messages, fresh=True, call=order.call))
        return await agent.sample(None, view, Stamp(number, Task("t", "program", 0), 0, "e", 0))

    async def several() -> list[Any]:
        return [await said(number) for number in range(6)]

    turns = asyncio.run(several())
    called = {(c.name, c.arguments) for turn in turns for c in turn.spoken.calls}
    assert called == {("turn", '{"way": "left"}'), ("turn", '{"way": "right"}')}
    assert all(len(turn.spoken.calls) == 1 and turn.last.action in turn.last.mask for turn in turns)


@pytest.mark.parametrize(("how", "shown"), [({}, "bob: hello"), ({"names": "drop"}, "hello")])
def test_a_name_stands_before_a_users_words_or_is_left_out(
    program: Make, players: Any, how: dict[str, str], shown: str
) -> None:
    """`names = "drop"` did nothing for coroutines. The prompt that the model reads has no name either."""
    (task,) = program("small_teams:named", roles=["planner"], how=how)
    (message,) = envs.make(task).observe()["planner"].messages
    assert message.content == shown
    (turn,) = players.play([task])[0].turns
    prompt = players.loaded.tokenizer.decode(turn.last.prompt)
    assert ("bob" in prompt) == (not how) and "hello" in prompt


def test_a_prompt_that_is_far_too_long_is_refused_before_all_of_it_is_read(
    program: Make, players: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To tokenise megabytes takes minutes, in which no other episode goes on."""
    most = players.engine.limits().context_tokens
    read: list[int] = []
    encode = players.renderer._codec.encode
    monkeypatch.setattr(players.renderer._codec, "encode", lambda text: read.append(len(text)) or encode(text))
    (episode,) = players.play(program("small_teams:asks_too_much"))
    (turn,) = episode.turns
    assert re.match(rf"the prompt has more than [\d,]+ tokens, and .* at most {most:,}\.", turn.spoken.refused)
    assert turn.status == "length" and not turn.samples
    assert max(read) == 16 * most


def test_every_call_says_whether_its_history_is_new_kept_edited_or_foreign(program: Make, players: Any) -> None:
    (episode,) = players.play(program("small_teams:forgets"))
    assert episode.error is None
    found = {t.keys.phase: t.last.history for t in episode.turns}
    assert found == {"": "new", "kept": "kept", "edited": "edited", "foreign": "foreign"}
    first, kept = episode.turns[0].last, episode.turns[1].last
    assert kept.extends == first.id
    assert kept.prompt[: len(first.prompt) + len(first.action)] == first.prompt + first.action
    assert [t.last.extends for t in episode.turns[2:]] == [None, None]


def test_records_keep_what_a_program_asked(program: Make, players: Any, tmp_path: Any) -> None:
    from interplay.rollout.media import MediaFolder

    (episode,) = players.play(program("small_teams:forgets"))
    read, _ = from_json(to_json(episode), MediaFolder(tmp_path))
    assert [replace_spoken(t) for t in read.turns] == [replace_spoken(t) for t in episode.turns]


def replace_spoken(turn: Any) -> Any:
    """What the program was told follows from the text; it is not recorded."""
    return replace(turn, spoken=None)


def test_rewards_can_be_of_any_level_by_name_and_late(program: Make) -> None:
    names = ("score", "words")
    (task,) = program("small_teams:two", "small_teams:by_level", rewards=names)
    env = played(task, {"planner": "go"}, {"solver": "done"})
    env.observe()
    found = {(r.name, r.level.value, r.role): r.value for r in envs.outcome_of(env)}
    assert found == {("score", "team", None): 1.0, ("words", "agent", "planner"): 2.0, ("words", "agent", "solver"): 4}
    (task,) = program("small_teams:two", "small_teams:later", rewards=names)
    env = played(task, {"planner": "go"}, {"solver": "done"})
    env.observe()
    assert {r.name: r.value for r in envs.outcome_of(env)} == {"score": 0.5, "words": 2.0}
    (task,) = program("small_teams:two", "small_teams:later")
    env = played(task, {"planner": "go"}, {"solver": "done"})
    env.observe()
    with pytest.raises(EnvError, match=r"gave the reward 'words'; expected one of env.rewards: score"):
        envs.outcome_of(env)


def test_a_number_of_numpy_is_a_number(program: Make) -> None:
    (task,) = program("small_teams:two", "small_teams:numpy_float")
    env = played(task, {"planner": "go"}, {"solver": "done"})
    env.observe()
    assert [(r.name, r.value) for r in envs.outcome_of(env)] == [("score", 0.5)]


@pytest.mark.parametrize(
    ("reward", "sentence"),
    [
        ("fails", r"env.reward 'small_teams:fails' failed with KeyError at .*small_teams.py:\d+: 'no such key'\."),
        ("fails_later", r"env.reward 'small_teams:fails_later' failed with KeyError at .*small_teams.py:\d+"),
        ("exits", r"env.reward 'small_teams:exits' failed with SystemExit at .*small_teams.py:\d+: no reward\."),
        ("gives_nan", r"small_teams:gives_nan gave the reward 'score' the value nan; expected a finite number"),
        ("gives_a_stranger", r"to the role 'judge'; expected one of env\.roles: planner, solver\."),
        ("gives_words", r"small_teams:gives_words gave \{'score': 'high'\}; expected a number for each name\."),
    ],
)
def test_a_reward_that_fails_says_where(program: Make, reward: str, sentence: str) -> None:
    (task,) = program("small_teams:two", f"small_teams:{reward}")
    env = played(task, {"planner": "go"}, {"solver": "done"})
    env.observe()
    with pytest.raises(EnvError, match=sentence):
        envs.outcome_of(env)


def test_the_conformance_suite_passes_on_a_program() -> None:
    options = {"coroutine": "small_teams:two", "reward": "small_teams:length", "roles": ["planner", "solver"]}
    failed = [f.rule for f in check("program", options, 2, 0) if not f.passed]
    assert failed == []


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"roles": ["a"], "reward": "x:y"}, "names no program; expected exactly one of command"),
        ({"roles": ["a"], "reward": "x:y", "coroutine": "c:d", "function": "e:f"}, "names function and coroutine"),
        ({"roles": [], "reward": "x:y", "coroutine": "c:d"}, "env.roles is"),
        ({"roles": ["a"], "coroutine": "c:d"}, "env.reward is missing"),
        ({"roles": ["a"], "reward": "x:y", "coroutine": "c:d", "route": {"b": {}}}, "env.route has 'b'"),
    ],
)
def test_options_that_cannot_work_are_one_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        envs.sample_task("program", options)


def test_rows_of_one_file_are_split_and_those_of_a_folder_are_as_they_are(tmp_path: Any) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text("\n".join(f'{{"n": {n}}}' for n in range(20)))
    options = {"coroutine": "small_teams:two", "reward": "small_teams:length", "roles": ["a"], "data": str(file)}
    held = {
        split: {envs.sample_task("program", options, split, i).data["row"]["n"] for i in range(40)}
        for split in ("train", "validation", "test")
    }
    assert held["validation"] == {8, 18} and held["test"] == {9, 19}
    assert held["train"] == set(range(20)) - {8, 9, 18, 19}
    file.write_text('{"n": 1}\n[2]\n')
    other = tmp_path / "other.jsonl"
    other.write_text('{"n": 1}\n[2]\n')
    with pytest.raises(ConfigError, match=r"other.jsonl:2 is a list"):
        envs.sample_task("program", {**options, "data": str(other)})


def test_runs_that_nobody_holds_any_more_end(program: Make) -> None:
    (task,) = program("small_teams:two")
    envs_held = [envs.make(task) for _ in range(4)]
    for env in envs_held:
        env.observe()
    loops = [env._run._live.loop for env in envs_held]  # type: ignore[attr-defined]
    del env
    envs_held.clear()
    gc.collect()
    until = time.monotonic() + 60
    while not all(loop.is_closed() for loop in loops) and time.monotonic() < until:
        time.sleep(0.01)
    assert all(loop.is_closed() for loop in loops)


def test_an_event_loop_is_not_blocked_while_programs_run(program: Make) -> None:
    (task,) = program("small_teams:two")

    async def both() -> None:
        made = [envs.make(task) for _ in range(8)]
        await asyncio.gather(*(env.settle() for env in made))
        assert all(set(env.observe()) == {"planner"} for env in made)

    asyncio.run(both())


@pytest.mark.filterwarnings("error")
def test_a_program_that_runs_is_ended_when_its_episode_is_cancelled(program: Make) -> None:
    """Its loop runs in another thread, and only that thread may close it. Otherwise the thread never came back, and
    after sixteen such episodes no program could run any more."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()  # what other tests left must not warn here
    tasks = program("small_teams:waits_long", tasks=coroutine._THREADS)
    small_teams = importlib.import_module("small_teams")

    async def cancelled() -> list[Any]:
        made = [envs.make(task) for task in tasks]
        settling = [asyncio.ensure_future(env.settle()) for env in made]
        while len(small_teams.BEGUN) < len(tasks):
            await asyncio.sleep(0.01)
        for one in settling:
            one.cancel()
        await asyncio.gather(*settling, return_exceptions=True)
        for env in made:
            env.close()
        return [env._run._live.loop for env in made]  # type: ignore[attr-defined]

    loops = asyncio.run(cancelled())
    until = time.monotonic() + 60
    while not all(loop.is_closed() for loop in loops) and time.monotonic() < until:
        time.sleep(0.01)
    assert all(loop.is_closed() for loop in loops)
    assert sorted(small_teams.CANCELLED) == list(range(len(tasks)))
    assert set(envs.make(program("small_teams:two")[0]).observe()) == {"planner"}
    gc.collect()  # a coroutine that nobody awaited would warn here


def test_a_program_can_be_collected_while_a_lock_is_held(program: Make) -> None:
    """The garbage collector ran inside the pool's lock, and ending a program asked for the same lock: a run hung."""
    (task,) = program("small_teams:two")
    env = played(task, {"planner": "go"})
    assert env._run is not None
    run = env._run

    def collected() -> None:
        with coroutine._lock:
            run.close()

    thread = threading.Thread(target=collected, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert isinstance(run, coroutine.CoroutineRun)
    until = time.monotonic() + 60
    while not run._live.loop.is_closed() and time.monotonic() < until:
        time.sleep(0.01)
    assert run._live.loop.is_closed()
