"""Whether a soft channel solves the signalling game, and whether the agents use it.

    python benchmarks/channels.py                  three seeds of the recipes in recipes/signalling, in each way
    python benchmarks/channels.py --quick          one seed, few steps: only shows that it runs
    python benchmarks/channels.py --json table.json --seconds 400 --device cuda
    python benchmarks/channels.py --ways fusion --seeds 1 2 --changes train.lr=3e-4

Each seed trains the same agents with soft tokens, with a gated channel, without a channel, and with soft tokens where
the sender sees the state as a picture; and one agent that sees the picture through a fusion adapter. "matched" is the
share of 400 held-out games in which the receiver names the state, "muted" the same with the channel muted, and "bits"
the mutual information between the state and what the receiver names (plug-in estimate; 3 bits are the most for 8
states). Without a channel a receiver can only guess: 1/8. "gap" is the largest difference of log-probs between engine
and learner in training. No new run begins after `--seconds`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import re
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import fmean
from typing import Any

import interplay as ip
from interplay.algorithms import Independent
from interplay.rollout.runner import Runner
from interplay.rollout.team import Speech

CHANNEL, FUSION = "recipes/signalling/channel.toml", "recipes/signalling/fusion.toml"
SEEING = ["env.view=image", "policies.sender.base=tiny-vl", "policies.receiver.base=tiny-vl"]
WAYS: dict[str, tuple[str, list[str]]] = {
    "soft tokens": (CHANNEL, ["channels.hint.fuse=tokens"]),
    "gated": (CHANNEL, ["channels.hint.fuse=gated"]),
    "no channel": (CHANNEL, ["channels={}"]),
    "sender sees": (CHANNEL, SEEING),
    "fusion": (FUSION, []),
}
GAMES = 400
STATE = re.compile(r"state: (\d+); .* named: (\w+)")


def played(run: Path, *changes: str) -> Counter[tuple[str, str]]:
    """How often each state was given each name, in held-out games."""
    with ip.load(run, *changes) as team:
        recipe, plan = team.plan.recipe, team.plan
        seating = team.team.seating(lambda _: plan.seats, Speech(1.0, recipe.sampling.max_tokens, True))
        runner = Runner(0, recipe.rollout, Independent(1), recipe.reward)
        episodes = asyncio.run(runner.run([team.task(i) for i in range(GAMES)], seating))
    found = [STATE.fullmatch(e.final_state) for e in episodes if e.error is None]
    return Counter((m[1], m[2]) for m in found if m is not None)


def matched(counts: Counter[tuple[str, str]]) -> float:
    return sum(n for (state, named), n in counts.items() if state == named) / counts.total()


def bits(counts: Counter[tuple[str, str]]) -> float:
    """The mutual information of the pairs."""
    total, left, right = counts.total(), Counter[str](), Counter[str]()
    for (state, named), n in counts.items():
        left[state] += n
        right[named] += n
    return sum(n / total * math.log2(n * total / (left[a] * right[b])) for (a, b), n in counts.items())


def measure(way: str, seed: int, changes: list[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        began = time.monotonic()
        recipe, own = WAYS[way]
        made = ip.train(recipe, f"seed={seed}", *own, *changes, run=run, quiet=True).recipe
        seconds = time.monotonic() - began
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        gap = max(row.get(f"{name}/gap", 0.0) for row in rows for name in made.policies)
        with_it = played(run)
        silent = [f"channels.{name}.mute=true" for name in made.channels]
        muted = matched(played(run, *silent)) if silent else None
    out = {"way": way, "seed": seed, "steps": len(rows), "seconds": seconds, "matched": matched(with_it)}
    return out | {"muted": muted, "bits": bits(with_it), "gap": gap}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one seed and few steps: only checks that it runs")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="the seeds")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), help="only these ways")
    parser.add_argument("--changes", nargs="*", default=[], help="changes to every recipe, such as train.lr=3e-4")
    parser.add_argument("--seconds", type=float, default=480, help="begin no run after this many seconds")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--json", type=Path, help="also write the results to this file, as JSON")
    given = parser.parse_args()
    quiet = ["eval.every=0", "eval.before=false", "eval.after=false", "checkpoint.every=1000"]
    changes = [f"device={given.device}", *quiet, *(["train.steps=2", "rollout.tasks=4"] if given.quick else [])]
    changes += given.changes
    began, rows = time.monotonic(), list[dict[str, Any]]()
    print(f"{'way':12} {'seed':>4} {'steps':>5} {'seconds':>7} {'matched':>7} {'muted':>6} {'bits':>5} {'gap':>7}")
    for seed in given.seeds[: 1 if given.quick else None]:
        for way in given.ways:
            if time.monotonic() - began > given.seconds:
                continue
            row = measure(way, seed, changes)
            rows.append(row)
            muted = "" if row["muted"] is None else f"{row['muted']:.1%}"
            print(
                f"{way:12} {seed:4} {row['steps']:5} {row['seconds']:7.1f} {row['matched']:7.1%} {muted:>6} "
                f"{row['bits']:5.2f} {row['gap']:7.0e}",
                flush=True,
            )
            if given.json is not None:
                given.json.write_text(json.dumps(rows, indent=1))
    for way in WAYS:
        mine = [row["matched"] for row in rows if row["way"] == way]
        if mine:
            each = ", ".join(f"{share:.1%}" for share in mine)
            print(f"{way}: {fmean(mine):.1%} matched, mean over {len(mine)} seeds ({each})")


if __name__ == "__main__":
    main()
