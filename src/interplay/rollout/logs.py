"""Logs for people: moves, conversations and results.

`game_results_*.log` has a line per episode. `llm_conversation_*.log` has every prompt and reply in full, with errors
and timing. `game_summary_<model>.txt` has the totals so far and is rewritten during the run.
"""

from __future__ import annotations

import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from interplay.types import Episode, Message, Rewards, Turn


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
    body = [part for t in episode.line() for part in _turn(t)]
    final = f"--- end ---\n{episode.final_state}\nrewards: {_rewards(episode.rewards)}"
    if episode.error:
        final += f"\nERROR: {episode.error}"
    return "\n".join([head, *body, final]) + "\n"


def _turn(turn: Turn) -> Iterator[str]:
    """Every model call of a turn; for a bot, only its move."""
    if not turn.samples:
        yield _said(turn, f"{turn.decision}", "0+0 tokens, 0 ms", turn.observation.messages, turn.text)
    for n, sample in enumerate(turn.samples):
        which = f"{turn.decision}.{n}" if n else f"{turn.decision}"
        how = f"v{sample.version}, {len(sample.prompt)}+{sample.size} tokens, {sample.seconds * 1000:.0f} ms"
        yield _said(turn, which, how, sample.messages, sample.text)


def _said(turn: Turn, which: str, how: str, messages: Sequence[Message], text: str) -> str:
    prompt = "\n".join(f"[{m.role}] {m.content}{''.join(f' [media/{x.file}]' for x in m.media)}" for m in messages)
    return f"--- decision {which}, {turn.role} ({turn.policy} {how}, {turn.status}) ---\n{prompt}\n>>> {text}"


def _rewards(rewards: Rewards) -> str:
    return (
        " ".join(f"{r.name}[{r.role or 'team'}]={'-' if r.value is None else f'{r.value:+g}'}" for r in rewards)
        or "none"
    )
