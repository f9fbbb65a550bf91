"""Episodes on disk, and the logs that people read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interplay.algorithms import Tree
from interplay.errors import InterplayError
from interplay.rollout.logs import GameLogs
from interplay.rollout.records import from_json, read, to_json, write
from interplay.types import Episode, Keys, Level, Message, Reward, Rewards, Status, Task, Turn

WORD = st.text(max_size=3)
NUMBER = st.floats(allow_nan=False, allow_infinity=False)
REWARDS = st.lists(
    st.builds(Reward, st.text(max_size=5), st.sampled_from(Level), st.none() | st.text(max_size=3), st.none() | NUMBER),
    max_size=3,
).map(lambda records: Rewards(tuple(records)))
IDS = st.lists(st.integers(0, 10**6), max_size=4).map(tuple)
NUMBERS = st.lists(NUMBER, max_size=4).map(tuple)
MESSAGES = st.lists(st.builds(Message, st.sampled_from(["user", "system"]), st.text(max_size=10)), max_size=2).map(
    tuple
)
TURN = st.builds(
    Turn, id=st.text(max_size=5), parent=st.none() | st.text(max_size=5), role=st.text(max_size=3),
    decision=st.integers(0, 99),
    keys=st.builds(Keys, WORD, st.integers(0, 9), WORD, st.integers(0, 9), WORD, WORD, WORD, WORD),
    policy=st.text(max_size=5), version=st.integers(0, 99), prompt=IDS, action=IDS, logprobs=NUMBERS, text=st.text(),
    temperature=NUMBER, candidate=st.integers(0, 9), kept=st.booleans(), playout=st.none() | st.integers(0, 9),
    status=st.sampled_from(Status), merged=st.booleans(), seconds=NUMBER, messages=MESSAGES, rewards=REWARDS,
    outlook=st.none() | REWARDS, value=st.none() | NUMBER, target=st.none() | NUMBER,
    ref_logprobs=st.none() | NUMBERS, advantage=st.none() | NUMBER, legal=st.lists(WORD, max_size=2).map(tuple),
    state=WORD, coalitions=st.dictionaries(WORD, REWARDS, max_size=2), token_values=st.none() | NUMBERS,
    token_targets=st.none() | NUMBERS, token_advantages=st.none() | NUMBERS, legal_advantages=st.none() | NUMBERS,
    legal_logprobs=st.none() | st.lists(NUMBERS, max_size=2).map(tuple),
)  # fmt: skip
DATA = st.dictionaries(st.text(max_size=3), st.none() | st.booleans() | st.integers() | NUMBER | st.text(max_size=3))
EPISODE = st.builds(
    Episode, id=st.text(max_size=5), replica=st.integers(0, 9), error=st.none() | st.text(max_size=9),
    task=st.builds(Task, st.text(max_size=3), st.text(max_size=3), st.integers(0, 2**63 - 1), DATA),
    seats=st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2), turns=st.lists(TURN, max_size=2),
    rewards=REWARDS, truncated=st.booleans(), seconds=NUMBER, final_state=st.text(max_size=9),
    sampled=st.dictionaries(WORD, NUMBER, max_size=2),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(EPISODE)
def test_an_episode_survives_json(episode: Episode) -> None:
    """Read back it is the same record: every digit, every None, every odd character."""
    assert from_json(json.loads(json.dumps(to_json(episode)))) == episode


@pytest.fixture
def episodes(table: Any) -> list[Episode]:
    """Two real ones: candidates, playouts, a bot."""
    plan = Tree(2, "playout")
    return table(
        lambda c: c.choose(c.free), seats={"O": "bot:first"}, plan=plan, record_playouts=True
    ).play(2)  # fmt: skip


def test_files_are_appended_to_and_read_back(tmp_path: Path, episodes: list[Episode]) -> None:
    file = tmp_path / "episodes.jsonl"
    write(file, episodes[:1], {"step": 1})
    write(file, episodes[1:], {"step": 2})
    assert list(read(file)) == episodes
    assert [json.loads(line)["step"] for line in file.read_text().splitlines()] == [1, 2]


@pytest.mark.parametrize(
    "damage",
    [
        lambda line: line[: len(line) // 2],
        lambda line: "",
        lambda line: "null",
        lambda line: "[1, 2]",
        lambda line: '{"step": 1}',
        lambda line: '{"episode": {"turns": []}}',
        lambda line: line.replace('"status":"ok"', '"status":"bogus"'),
        lambda line: line.replace('"decision":', '"decisoin":'),
        lambda line: line.replace('"turns":[', '"turns":["x",'),
        lambda line: line.replace('"agent"', '"nobody"'),
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, episodes: list[Episode], damage: Any) -> None:
    """One sentence with the file and the line; what came before it was read."""
    file = tmp_path / "episodes.jsonl"
    write(file, episodes, {"step": 1})
    first, second = file.read_text().splitlines()
    assert damage(second) != second
    file.write_text(f"{first}\n{damage(second)}\n")
    found = read(file)
    assert next(found) == episodes[0]
    with pytest.raises(InterplayError, match=r"episodes\.jsonl line 2 is no episode record \(.*\)\.") as caught:
        next(found)
    assert type(caught.value) is InterplayError


# -- logs -------------------------------------------------------------------------------------------------------------


def logged(folder: Path, name: str) -> str:
    (file,) = folder.glob(name)
    return file.read_text(encoding="utf-8")


def test_the_logs_say_what_was_played_and_how_it_ended(tmp_path: Path, table: Any) -> None:
    """A line per game, every prompt and reply in full with timing, and the totals."""
    moves = {0: "1", 1: "4", 2: "2", 3: "5", 4: "3"}
    (won,) = table(lambda c: moves[c.decision]).play()
    (lost,) = table(lambda c: "9" if c.decision < 2 else "1", seats={"O": "rival"}).play()
    lost.seconds = 1.5
    logs = GameLogs(tmp_path, "tiny+org/model name")
    logs.write(7, [won, lost])
    logs.close()

    results = logged(tmp_path, "game_results_*.log").splitlines()
    assert len(results) == 2
    assert results[0].startswith(f"step 7 {won.id} seats X=player O=player | X:'1' O:'4' X:'2' O:'5' X:'3' | rewards")
    assert "win[X]=+1 win[O]=-1" in results[0]
    assert "O=rival" in results[1] and "illegal[O]=-1" in results[1] and results[1].endswith("| 1.50s")

    talk = logged(tmp_path, "llm_conversation_*.log")
    for turn in [*won.line(), *lost.line()]:
        assert all(m.content in talk for m in turn.messages)
        assert f"{len(turn.prompt)}+{len(turn.action)} tokens" in talk
    assert talk.count(">>> ") == 7 and ">>> 4" in talk and "illegal" in talk
    assert "X won" in talk and "[user] " in talk

    summary = logged(tmp_path, "game_summary_tiny+org_model_name.txt")
    assert "Model: tiny+org/model name" in summary
    for line in ("episodes: 2", "failed: 0", "turns: 7", "turns illegal: 1", "win (X) > 0: 2", "win (O) < 0: 2"):
        assert line in summary.splitlines()
    assert "  illegal (O): -0.500" in summary.splitlines()


def test_the_logs_tell_of_failures(tmp_path: Path, table: Any) -> None:
    """A failed episode stands in all three files, with its error."""
    from interplay.errors import EngineError

    (failed,) = table(lambda c: EngineError("the server is gone.") if c.decision else "1").play()
    logs = GameLogs(tmp_path, "tiny")
    logs.write(1, [failed])
    assert "ERROR EngineError: the server is gone." in logged(tmp_path, "game_results_*.log")
    assert "ERROR: EngineError: the server is gone." in logged(tmp_path, "llm_conversation_*.log")
    assert "failed: 1" in logged(tmp_path, "game_summary_tiny.txt")
    logs.close()


def test_the_logs_are_readable_while_the_run_goes_on(tmp_path: Path, table: Any) -> None:
    """Every step is flushed, and only what was really played is told."""
    (episode,) = table(lambda c: c.choose(c.free), plan=Tree(3, "playout"), record_playouts=True).play()
    logs = GameLogs(tmp_path, "tiny")
    logs.write(1, [episode])
    assert logged(tmp_path, "llm_conversation_*.log").count(">>> ") == len(episode.line()) < len(episode.turns)
    logs.write(2, [episode])
    assert len(logged(tmp_path, "game_results_*.log").splitlines()) == 2
    assert "episodes: 2" in logged(tmp_path, "game_summary_tiny.txt")
    logs.close()
