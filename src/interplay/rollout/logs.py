"""Logs for people: what was played, what was said, and how it came out.

`game_results_*.log` has a line per episode, `llm_conversation_*.log` every prompt and reply in full with errors and
timing, `game_summary_<model>.txt` the totals so far, rewritten as the run goes on.
"""

from __future__ import annotations

import re
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from interplay.types import Episode, Rewards, Turn


class GameLogs:
    def __init__(self, folder: Path, model: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        stamp = time.strftime("%Y%m%d_%H%M%S")
        self._results = (folder / f"game_results_{stamp}.log").open("a", encoding="utf-8")
        self._conversation = (folder / f"llm_conversation_{stamp}.log").open("a", encoding="utf-8")
        self._summary = folder / f"game_summary_{re.sub(r'[^A-Za-z0-9.+-]+', '_', model)}.txt"
        self._model = model
        self._counts: Counter[str] = Counter()
        self._sums: dict[str, float] = defaultdict(float)

    def write(self, step: int, episodes: Sequence[Episode]) -> None:
        for episode in episodes:
            self._results.write(_result_line(step, episode) + "\n")
            self._conversation.write(_conversation(step, episode) + "\n")
            self._count(episode)
        self._results.flush()
        self._conversation.flush()
        self._summary.write_text(self._totals(), encoding="utf-8")

    def _count(self, episode: Episode) -> None:
        self._counts["episodes"] += 1
        self._counts["failed"] += episode.error is not None
        self._counts["truncated"] += episode.truncated
        for turn in episode.line():
            self._counts["turns"] += 1
            self._counts[f"turns {turn.status}"] += 1
        for r in episode.rewards:
            if r.value is not None:
                key = f"{r.name} ({r.role or 'team'})"
                self._sums[key] += r.value
                self._counts[f"{key} {'>' if r.value > 0 else '<' if r.value < 0 else '='} 0"] += 1

    def _totals(self) -> str:
        played = max(1, self._counts["episodes"])
        lines = [f"Model: {self._model}", f"Written: {time.strftime('%Y-%m-%d %H:%M:%S')}", ""]
        lines += [f"{name}: {count}" for name, count in sorted(self._counts.items())]
        lines += ["", "Mean per episode:"] + [
            f"  {name}: {total / played:+.3f}" for name, total in sorted(self._sums.items())
        ]
        return "\n".join(lines) + "\n"

    def close(self) -> None:
        self._results.close()
        self._conversation.close()


def _result_line(step: int, episode: Episode) -> str:
    seats = " ".join(f"{role}={who}" for role, who in episode.seats.items())
    moves = " ".join(f"{t.role}:{t.text!r}" for t in episode.line())
    end = f"ERROR {episode.error}" if episode.error else f"rewards {_rewards(episode.rewards)}"
    return f"step {step} {episode.id} seats {seats} | {moves} | {end} | {episode.seconds:.2f}s"


def _conversation(step: int, episode: Episode) -> str:
    head = f"===== step {step} {episode.id} ({episode.seconds:.2f}s) ====="
    body = [_turn(call) for t in episode.line() for call in t.whole]
    final = f"--- end ---\n{episode.final_state}\nrewards: {_rewards(episode.rewards)}"
    if episode.error:
        final += f"\nERROR: {episode.error}"
    return "\n".join([head, *body, final]) + "\n"


def _turn(turn: Turn) -> str:
    prompt = "\n".join(f"[{m.role}] {m.content}{' [picture]' * len(m.images)}" for m in turn.messages)
    size = f"{len(turn.prompt)}+{len(turn.action) or turn.used} tokens"
    how = f"{turn.policy} v{turn.version}, {size}, {turn.seconds * 1000:.0f} ms, {turn.status}"
    which = f"{turn.decision}.{turn.call}" if turn.call else f"{turn.decision}"
    return f"--- decision {which}, {turn.role} ({how}) ---\n{prompt}\n>>> {turn.text}"


def _rewards(rewards: Rewards) -> str:
    return (
        " ".join(f"{r.name}[{r.role or 'team'}]={'-' if r.value is None else f'{r.value:+g}'}" for r in rewards)
        or "none"
    )
