"""Small run folders that are written without training: the records are real, the play is made up."""

from __future__ import annotations

import io
import json
import wave
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from interplay import algorithms
from interplay.config import parse
from interplay.rollout import records
from interplay.types import (
    Credit,
    Episode,
    Keys,
    Level,
    Media,
    Message,
    Observation,
    Outlook,
    Policy,
    Reward,
    Rewards,
    Sample,
    Status,
    Task,
    Turn,
)

TREE = {"name": "at_grpo", "candidates": 4, "scale": False}
WHOLE = {"name": "grpo", "group": 4}
HOSTILE = "</script><img src=x onerror=alert(1)>\u202eevil\x1b[2J\ud800"
PICTURE = Media(
    "image",
    bytes.fromhex(
        "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c6360f8cf00000301010018dd8db0"
        "0000000049454e44ae426082"
    ),
)


def recipe(algorithm: dict[str, Any] = TREE, **more: Any) -> dict[str, Any]:
    return {
        "name": "written",
        "env": {"name": "tictactoe"},
        "policies": {"player": {"base": "tiny"}},
        "seats": {"X": "player", "O": "player"},
        "algorithm": algorithm,
        "train": {"steps": 10},
        "eval": {"opponents": []},
        **more,
    }


def turn(episode: str, decision: int, role: str, text: str, candidate: int = 0, **more: Any) -> Turn:
    name = f"{episode}/{decision}{role}{candidate}"
    task, replica = episode.split("#")
    seen = more.pop("seen", f"board {decision}, and a secret of {role}")
    media = more.pop("media", ())
    messages = (Message("user", seen, media=media),)
    tokens = tuple(range(5, 5 + max(1, len(text.split()))))
    logprobs, versions = tuple(-0.5 - i for i in range(len(tokens))), (7,) * len(tokens)
    sample = Sample(name, (1, 2, 3), tokens, logprobs, versions, text, messages=messages)
    keys = Keys(task, int(replica), episode, decision, role, "", "", f"{episode}{decision}{role}")
    return Turn(
        name, None, keys, "player", text, Observation(messages, legal=("1", "2")), (sample,), candidate=candidate,
        state=f"whole board {decision}", **more,
    )  # fmt: skip


def tree_episode(number: int, worths: Sequence[float] = (1.0, 0.0, -1.0, 0.5), said: str = "move") -> Episode:
    """Two decisions of X and O; four candidates each, the first of which is kept."""
    name = f"task-{number}#0"
    turns = []
    for decision, role in enumerate(("X", "O")):
        for k, worth in enumerate(worths):
            outlook = Outlook(Rewards((Reward("win", Level.AGENT, role, worth),)))
            turns.append(turn(name, decision, role, f"{said} {k}", k, kept=k == 0, outlook=outlook))
    rewards = Rewards.agent("win", {"X": worths[0], "O": -worths[0]})
    turns[0].rewards = Rewards((Reward("win", Level.AGENT, "X", worths[0]),))
    seats = {"X": Policy("player"), "O": Policy("player")}
    return Episode(name, Task(f"task-{number}", "tictactoe", number), 0, seats, turns, rewards, final_state="X won")


def played_out(number: int) -> Episode:
    """An episode whose first two candidates of X were played to the end, the first of them twice."""
    episode = tree_episode(number)
    for candidate, playout, answer, worth in ((0, 0, "left", 1.0), (0, 1, "right", 0.5), (1, 0, "middle", 0.0)):
        episode.turns.append(_playout(episode, f"0.{candidate}.{playout}", answer, worth))
    return episode


def played_out_at_once(number: int) -> Episode:
    """X and O decide at once and have three candidates each, of which the last two are equal. All but the last were
    played to the end."""
    name = f"task-{number}#0"
    episode = tree_episode(number)
    episode.turns = []
    for role in ("X", "O"):
        for k, said in enumerate(("a", "b", "b")):
            outlook = Outlook(Rewards((Reward("win", Level.AGENT, role, float(k == 0)),)))
            episode.turns.append(turn(name, 0, role, said, k, kept=k == 0, outlook=outlook))
    for place, role in enumerate(("X", "O")):
        for k in range(2):
            episode.turns.append(_playout(episode, f"0.{place}.{k}.0", f"after {role}{k}", 1.0))
    return episode


def _playout(episode: Episode, path: str, said: str, worth: float) -> Turn:
    made = turn(episode.id, 1, "O", said)
    made.id, made.playout = f"{episode.id}.{path}/1O0", int(path.split(".")[-1])
    made.keys = replace(made.keys, prompt="")
    made.rewards = Rewards((Reward("win", Level.AGENT, "X", worth),))
    return made


def group_episodes(number: int, worths: Sequence[float] = (1.0, -1.0, 0.0, 0.0)) -> list[Episode]:
    """Four episodes of one task, each with a turn of X and one of O."""
    out = []
    for replica, worth in enumerate(worths):
        name = f"task-{number}#{replica}"
        turns = [turn(name, 0, "X", f"reply {replica}"), turn(name, 1, "O", "answer", seen=f"reply {replica}, you see")]
        turns[0].rewards = Rewards((Reward("win", Level.AGENT, "X", worth),))
        turns[1].rewards = Rewards((Reward("win", Level.AGENT, "O", -worth),))
        rewards = turns[0].rewards + turns[1].rewards
        task = Task(f"task-{number}", "tictactoe", number)
        seats = {"X": Policy("player"), "O": Policy("player")}
        out.append(Episode(name, task, replica, seats, turns, rewards, final_state="end"))
    return out


def write_run(folder: Path, steps: int = 3, algorithm: dict[str, Any] = TREE, **more: Any) -> Path:
    """A run folder with metrics and two tasks for each step; credit is given by the algorithm itself."""
    folder.mkdir(parents=True, exist_ok=True)
    data = recipe(algorithm, **more)
    full = parse(data)
    (folder / "run.json").write_text(json.dumps({"recipe": full.model_dump(), "seed": 0, "versions": {"python": "3"}}))
    for step in range(1, steps + 1):
        add_step(folder, step, algorithm)
    return folder


def add_step(folder: Path, step: int, algorithm: dict[str, Any] = TREE, more: Sequence[Episode] = ()) -> None:
    full = parse(recipe(algorithm))
    if algorithm["name"] == "at_grpo":
        episodes = [tree_episode(2 * step), tree_episode(2 * step + 1, (0.0, 0.0, 1.0, 0.0))]
    else:
        episodes = group_episodes(step)
    episodes += more
    given = Credit()
    algorithms.make(full.algorithm, full.reward, 0).credit(episodes, given)
    for sample in (s for e in episodes for t in e.turns for s in t.samples):
        given.gap[sample.id] = (1e-7, -2e-7, *(0.0,) * len(sample.action))[: len(sample.action)]
        given.entropy[sample.id] = (1.5, 0.25, *(1.0,) * len(sample.action))[: len(sample.action)]
    row = {
        "step": step, "time": 1.0, "reward": step / 10, "player/entropy": 1 / step, "reward/win/X": 0.1 * step,
        "reward/win/O": -0.1 * step, "tokens_per_second": 100.0, "eval/win_rate/bot:random": step / 20,
    }  # fmt: skip
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")
    records.write(folder / "episodes.jsonl", episodes, step, given)


def illegal(number: int) -> Episode:
    """An episode that ended with an illegal move, with a picture and a hostile text."""
    episode = tree_episode(number, said=HOSTILE)
    first = turn(f"task-{number}#0", 0, "X", "nonsense " + HOSTILE, media=(PICTURE,), status=Status.ILLEGAL)
    episode.turns = [first, *episode.turns[4:]]
    episode.error = None
    return episode


def sound(seconds: float) -> Media:
    """A WAV file of silence."""
    data = io.BytesIO()
    with wave.open(data, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(bytes(2 * int(8000 * seconds)))
    return Media("audio", data.getvalue())


def calling(number: int) -> Episode:
    """An episode whose first turn hears a sound, calls two tools in one reply, then one, and acts."""
    (episode,) = group_episodes(number, (1.0,))
    heard = turn(f"task-{number}#0", 0, "X", "ends with 5", media=(sound(1.5),))
    last = heard.samples[0]
    both = replace(last, id=f"{last.id}-a", text="add(1, 1) ls()", tool="add+ls")
    one = replace(
        last, id=f"{last.id}-b", text="add(2, 3)", tool="add", messages=(Message("tool", "2"), Message("tool", "a.txt"))
    )
    heard.samples = (both, one, replace(last, messages=(Message("tool", "five"),)))
    episode.turns[0] = heard
    return episode
