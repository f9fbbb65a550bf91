"""What a Hanabi team needs to reach a score: how much of the rule-based team's play is in the prompt, and how exact an
imitation must be.

    python benchmarks/hanabi.py --games 200

All teams play the small variant of recipes/hanabi/at_grpo.toml. The rule-based team remembers all moves. The second
team applies the same rules to what the prompt shows: what hints say about each card, and the last move. The other rows
are the second team with a random legal move in some of the turns.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from interplay import envs
from interplay.agents.bots import hanabi, make_bot
from interplay.agents.bots.hanabi import _believable, _next_cards, _Note
from interplay.config import load
from interplay.envs.games.hanabi import Hanabi
from interplay.evaluation.intervals import mean
from interplay.rollout.resolve import resolve
from interplay.seats import RunPlan

RECIPE = Path(__file__).parents[1] / "recipes" / "hanabi" / "at_grpo.toml"
Notes = Callable[[Hanabi], list[list[_Note]]]
REMEMBERED: Notes = hanabi._notes


def shown(env: Hanabi) -> list[list[_Note]]:
    """The convention's notes as far as the prompt shows them: a card was touched if its colour or rank is known, and
    only the last move can have signalled a card."""
    variant = env.variant
    notes = [[_Note(1 in (len(h.colours), len(h.ranks))) for h in hand] for hand in env.hands]
    if env.moves and env.moves[-1].places:
        places, (_, whom, value) = env.moves[-1].places, env.moves[-1].action.split()
        hand = env.hands[int(whom[1:])]
        rank = value.isdigit()
        fresh = [i for i in places if (hand[i].colours == variant.colours if rank else hand[i].ranks == variant.ranks)]
        focus = max(fresh or places)
        next_cards = _next_cards(variant, env.fireworks, Counter(env.discards))
        notes[int(whom[1:])][focus].signalled = _believable(next_cards, hand[focus])
    return notes


def play(plan: RunPlan, number: int, notes: Notes, noise: float) -> int:
    """The score of one game."""
    hanabi._notes = notes
    bot, rng = make_bot("hanabi", "hanabi"), random.Random(number)
    env = envs.make(plan.task(number))
    assert isinstance(env, Hanabi)
    while env.observe():
        role = env.roles[env.player]
        env.step({role: rng.choice(env.legal()) if rng.random() < noise else bot.act(env, role, rng)})
    return env.score


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=int, default=200, help="games of each team")
    games = parser.parse_args().games
    plan = resolve(load(RECIPE, ["device=cpu"]))
    rows: list[tuple[str, Notes, float]] = [("rules with memory", REMEMBERED, 0.0)]
    rows.append(("rules from the prompt", shown, 0.0))
    rows += [(f"and {noise:.0%} random moves", shown, noise) for noise in (0.02, 0.05, 0.1, 0.2, 0.4)]
    try:
        for name, notes, noise in rows:
            found = mean([float(play(plan, number, notes, noise)) for number in range(games)])
            print(f"{name:<26}{found.value:>6.2f} ± {found.high - found.value:.2f} of 10, {games} games", flush=True)
    finally:
        hanabi._notes = REMEMBERED


if __name__ == "__main__":
    main()
