"""Measures judges on one GPU: `python benchmarks/judges.py PART ... --data FOLDER [--minutes 25] [--out judges.json]`.

    bradley_terry  a reward model on HH pairs: accuracy on held-out pairs, beside "the longer one wins", and seconds
    spoken         a judge that answers in words, before and after imitation of the pairs in both orders: accuracy,
                   consistency after a swap, pairs where the shorter reply won, agreement with people on MT-bench
    folds          the same judge with another fifth of the HH pairs held out by each seed, so that each pair is judged
                   by a judge that did not learn it: the share of all pairs where the shorter reply won (--seeds 5);
                   with --balance length, the longer reply wins as often as the shorter one in what it learns from
    server         replies of 256 tokens that a reward server scores in a second, over HTTP
    verifier       eight solutions of each GSM8K train question by one policy; a verifier on balanced rows; the best of
                   eight beside random, majority, longest and oracle on held-out questions; AUC with solutions blanked

FOLDER holds hh_rlhf/, mt_bench/ and gsm8k/ in their public formats. What is done is written after every part and seed,
and nothing new is begun after `--minutes`. `--tiny` makes everything small, to try the script on a CPU.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import torch
from transformers.utils import logging

from interplay.agents.render import Renderer
from interplay.config import TrainSection
from interplay.engines.engine import Request, Sampling
from interplay.engines.local import LocalEngine
from interplay.evaluation.intervals import bootstrap
from interplay.models.load import load
from interplay.rewards import judge, verify
from interplay.rewards.agreement import agreement, auc, wilson
from interplay.rewards.audit import in_both_orders
from interplay.rewards.comparisons import LabelledAnswer, read_comparisons
from interplay.rewards.preference import Pair, held_out, in_random_order
from interplay.serving.reward import RewardServer
from interplay.training.local import LocalLearner
from interplay.training.preference import Fitting, RewardModel, new_reward_model
from interplay.training.rater import evened, fit_answers, fit_pairs, spoken_verdicts, tested, verified
from interplay.training.tries import Example
from interplay.types import Message, Sample, seed_of

PARTS = ("bradley_terry", "spoken", "folds", "server", "verifier")
FOLDS = 5


def short(pairs: Sequence[Pair]) -> list[Pair]:
    """The pairs that fit into the context of a tiny model, for which each byte is a token."""
    return [p for p in pairs if len(f"{p.question}{p.first}{p.second}".encode()) < 3000]


class Bench:
    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.began = args, time.monotonic()
        cuda = torch.cuda.is_available() and not args.tiny
        self.where = ("cuda", torch.bfloat16) if cuda else ("cpu", torch.float32)
        self.base = "tiny-32x1" if args.tiny else args.base
        self.policy = "tiny-32x1" if args.tiny else args.policy
        self.verifying = "tiny-32x1" if args.tiny else args.verifier or args.base
        self.train = TrainSection(micro_batch_tokens=131_072 if cuda else 16_384)
        self.done: dict[str, Any] = json.loads(args.out.read_text()) if args.out.is_file() else {}

    def late(self) -> bool:
        return time.monotonic() - self.began > 60 * self.args.minutes

    def note(self, part: str, seed: int, found: dict[str, Any]) -> None:
        self.done.setdefault(part, {})[str(seed)] = found
        self.args.out.write_text(json.dumps(self.done, indent=1) + "\n")
        shown = {k: round(v, 4) if isinstance(v, float) else v for k, v in found.items()}
        print(part, "seed", seed, json.dumps(shown), flush=True)

    def hh(self, seed: int, fold: int | None = None) -> tuple[list[Pair], list[Pair]]:
        """Pairs to learn from and pairs that are held out: the same 454 for all seeds, or one of FOLDS parts."""
        pairs = read_comparisons(next((self.args.data / "hh_rlhf").glob("*.jsonl*")))
        pairs = sorted(pairs, key=lambda p: seed_of("hh", p.id))  # one split for all seeds
        held = max(2, round(len(pairs) * 454 / 2354))
        test, train = pairs[:held], pairs[held:]
        if fold is not None:
            test = pairs[fold::FOLDS]
            train = [pair for n, pair in enumerate(pairs) if n % FOLDS != fold]
        if self.args.tiny:
            train, test = short(train), short(test)
        few = 24 if self.args.tiny else len(pairs)
        train = evened(train, seed) if self.args.balance == "length" else train
        return in_random_order(train[:few], seed), in_random_order(test[:few], seed)

    # -- parts ----------------------------------------------------------------------------------------------------

    def bradley_terry(self, seed: int) -> dict[str, Any]:
        train, test = self.hh(seed)
        began = time.monotonic()
        model = new_reward_model("reward_model", self.base, self.train, self.where, seed)
        fit_pairs(model, train, Fitting(epochs=2, batch=32, lr=self.args.lr, seed=seed))
        seconds = time.monotonic() - began
        found = tested(model, test)
        scores = model.raw([(p.question, p.first) for p in test])
        correlation = float(torch.corrcoef(torch.tensor([scores, [float(len(p.first)) for p in test]]))[0, 1])
        return {"seconds": seconds, "pairs": len(train), "length_correlation": correlation, **asdict(found)}

    def folds(self, seed: int) -> dict[str, Any]:
        return self.spoken(seed, seed % FOLDS)

    def spoken(self, seed: int, fold: int | None = None) -> dict[str, Any]:
        train, test = self.hh(seed, fold)
        loaded = load(self.base, *self.where, seed)
        engine = LocalEngine(loaded.model, tokenizer=loaded.tokenizer)
        renderer = Renderer(loaded.tokenizer, loaded.stop_ids)
        verdicts: Callable[[Sequence[Pair]], Any] = lambda pairs: spoken_verdicts(engine, renderer, pairs)  # noqa: E731
        out: dict[str, Any] = {f"before_{k}": v for k, v in _judged(verdicts, test).items()}
        settings = self.train.model_copy(update={"lr": self.args.lr, "weight_decay": 0.0})
        learner = LocalLearner("judge", loaded.model, settings, self.args.lr, seed)
        rows = []
        for pair in (q for p in train for q in (p, p.swapped())):
            prompt = renderer.prompt(judge.compare(pair.question, pair.first, pair.second, "")).ids
            reply = renderer.encode_reply("A" if (pair.label or 0.0) > 0.5 else "B")
            zeros = (0.0,) * len(reply)
            rows.append(Example("judge", Sample(f"{len(rows)}", prompt[-2048:], reply, zeros, (0,) * len(reply), "")))
        began = time.monotonic()
        starts = [(epoch, start) for epoch in range(2) for start in range(0, len(rows), 32)]
        for n, (epoch, start) in enumerate(starts):
            if start == 0:  # both orders of a pair are in one batch: a preference for a position has no gradient
                rows.sort(key=lambda e: (seed_of("sft", seed, epoch, int(e.sample.id) // 2), int(e.sample.id)))
            # The rate rises over the first tenth and falls to 0, so that no order is favoured by the last batches.
            for group in learner.optimizer.param_groups:
                group["lr"] = self.args.lr * min(1.0, 10 * (n + 1) / len(starts), 1.0 - n / len(starts))
            learner.imitate(rows[start : start + 32])
        engine.update(1)
        out["seconds"] = time.monotonic() - began
        out |= _judged(verdicts, test)
        people = in_random_order(read_comparisons(self.args.data / "mt_bench" / "human_pairs.json"), seed)
        people = short(people)[:8] if self.args.tiny else people
        found = agreement(people, in_both_orders(verdicts, people))
        engine.close()
        return {**out, "mt_bench": found.accuracy, "mt_bench_longer": found.longer}

    def server(self, seed: int) -> dict[str, Any]:
        import uvicorn

        model = new_reward_model("reward_model", self.base, self.train, self.where, seed)
        count, length = (8, 16) if self.args.tiny else (8192, 256)
        word = model.tokenizer.decode(model.tokenizer.encode(" word", add_special_tokens=False)[:1])
        reward = RewardServer(model, batch=512)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        made = uvicorn.Server(uvicorn.Config(reward.app(), host="127.0.0.1", port=port, log_level="error"))
        threading.Thread(target=made.run, daemon=True).start()
        while not made.started:
            time.sleep(0.01)

        def ask(replies: int) -> float:
            client = [sys.executable, str(Path(__file__).with_name("reward_client.py")), "--port", str(port)]
            what = ["--replies", str(replies), "--word", word, "--words", str(length - 8)]
            return float(subprocess.run([*client, *what], check=True, capture_output=True, text=True).stdout)

        ask(count // 8)  # compile and warm up
        seconds = ask(count)
        made.should_exit = True
        replies = [((Message("user", "Say it."),), f"{i}" + word * (length - 8)) for i in range(64)]
        tokens = fmean(map(len, model.read(replies)))
        return {"replies_per_second": count / seconds, "tokens_per_reply": tokens, "batches": reward.batches}

    def verifier(self, seed: int) -> dict[str, Any]:
        answers = self._solutions()
        train = [a for a in answers if not held_out(a.group, 0.3, seed)]
        test = [a for a in answers if held_out(a.group, 0.3, seed)]
        model = new_reward_model("verifier", self.verifying, self.train, self.where, seed)
        how = Fitting(epochs=2, batch=32, lr=self.args.lr, seed=seed)
        fit_answers(model, train, how, "class" if self.args.tiny else "question")
        found = verified(model, test, final=verify.final)
        paired = _paired(model, test)
        out = {**asdict(found), **paired}
        for name, balance in (("blank_balanced", "question"), ("blank_unbalanced", "none")):
            blank = new_reward_model("verifier", self.verifying, self.train, self.where, seed)
            fit_answers(blank, [replace(a, text="") for a in train], how, "class" if self.args.tiny else balance)  # type: ignore[arg-type]
            scores = blank.scores([(a.question, "") for a in test])
            out[f"auc_{name}"] = auc(scores, [a.right for a in test])
            # Between nearly equal scores, an AUC only shows in which order noise put the questions.
            out[f"deviation_{name}"] = pstdev(scores)
        return out

    def _solutions(self) -> list[LabelledAnswer]:
        """Eight for each question, sampled once and kept beside the results; `--sampling` limits the time."""
        kept = self.args.out.with_suffix(".solutions.jsonl")
        if not kept.is_file():
            self._sample(kept)
        rows = [json.loads(line) for line in kept.read_text().splitlines()]
        return [LabelledAnswer((Message("user", r["question"]),), r["text"], r["right"], r["question"]) for r in rows]

    def _sample(self, kept: Path) -> None:
        loaded = load(self.policy, *self.where, 0)
        engine = LocalEngine(loaded.model, tokenizer=loaded.tokenizer)
        renderer = Renderer(loaded.tokenizer, loaded.stop_ids)
        sampling = Sampling(0.8, 8 if self.args.tiny else 320, loaded.stop_ids)
        ask = "Solve the problem step by step. End with a line: Answer: and the number.\n"

        async def one(n: int, k: int, question: str) -> str:
            ids = renderer.prompt((Message("user", ask + question),)).ids
            done = await engine.generate(Request((n, k), ids, seed_of("solve", n, k), sampling))
            return renderer.decode(done.tokens)[0]

        async def every(rows: Sequence[tuple[int, str]]) -> list[list[str]]:
            jobs = [asyncio.gather(*(one(n, k, question) for k in range(8))) for n, question in rows]
            return [list(x) for x in await asyncio.gather(*jobs)]

        lines = (self.args.data / "gsm8k" / "train.jsonl").read_text().splitlines()
        asked = [json.loads(line) for line in lines[: 12 if self.args.tiny else self.args.questions]]
        began, out = time.monotonic(), []
        for start in range(0, len(asked), 128):
            if time.monotonic() - began > self.args.sampling:
                break
            part = asked[start : start + 128]
            solved = asyncio.run(every([(start + i, row["question"]) for i, row in enumerate(part)]))
            out += [(row, texts) for row, texts in zip(part, solved, strict=True)]
        engine.close()
        print(f"{len(out)} questions with eight solutions each in {time.monotonic() - began:.0f} s", flush=True)
        kept.write_text("".join(self._labelled(row, k, t) for row, texts in out for k, t in enumerate(texts)))

    def _labelled(self, row: dict[str, str], k: int, text: str) -> str:
        gold = row["answer"].rpartition("####")[2].strip().replace(",", "")
        stated = verify.final(text)
        right = stated is not None and verify.equal(gold, stated)
        right = right or (self.args.tiny and k % 2 == 0)  # a tiny model solves nothing
        return json.dumps({"question": row["question"], "text": text, "right": right}) + "\n"


def _judged(verdicts: Callable[[Sequence[Pair]], Any], test: Sequence[Pair]) -> dict[str, Any]:
    there, back = verdicts(test), verdicts([p.swapped() for p in test])
    consistent = fmean(a.decision == -b.decision for a, b in zip(there, back, strict=True))
    both = in_both_orders(verdicts, test)
    found = agreement(test, both)
    out = {"accuracy": found.accuracy, "low": found.low, "longer": found.longer, "consistent": consistent}
    if not found.shorter_count:
        return out
    return out | {"shorter_won": found.shorter, "shorter_count": found.shorter_count}


def pooled(found: Sequence[dict[str, Any]]) -> str:
    """The share over the pairs of all folds, with an interval over pairs."""
    count = sum(row.get("shorter_count", 0) for row in found)
    right = sum(row["shorter_won"] * row["shorter_count"] for row in found if row.get("shorter_count"))
    low, high = wilson(right, count)
    return (
        f"folds: {len(found)} of {FOLDS}; right in {100 * right / max(1, count):.1f}% [{100 * low:.1f}, "
        f"{100 * high:.1f}] of the {count} pairs where the shorter reply won"
    )


def _paired(model: RewardModel, test: Sequence[LabelledAnswer]) -> dict[str, float]:
    """For each question: how much better the best of its answers is than a random one, and than the majority's."""
    scores = model.scores([(a.question, a.text) for a in test])
    groups: dict[str, list[tuple[float, LabelledAnswer]]] = {}
    for s, a in zip(scores, test, strict=True):
        groups.setdefault(a.group, []).append((s, a))
    over_random, over_majority = [], []
    for members in groups.values():
        best = float(max(members, key=lambda m: m[0])[1].right)
        finals = [verify.final(a.text) for _, a in members]
        most = max(finals, key=finals.count)
        over_random.append(best - fmean(a.right for _, a in members))
        over_majority.append(best - float(members[finals.index(most)][1].right))
    out = {}
    for name, gaps in (("random", over_random), ("majority", over_majority)):
        found = bootstrap(gaps)
        out |= {f"over_{name}": found.value, f"over_{name}_low": found.low, f"over_{name}_high": found.high}
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"parts: {', '.join(PARTS)}; default: all")
    parser.add_argument("--data", type=Path, required=True, help="folder with hh_rlhf/, mt_bench/ and gsm8k/")
    parser.add_argument("--base", default="smollm2", help="the base of the judges")
    parser.add_argument(
        "--policy", default="Qwen/Qwen2.5-Coder-0.5B-Instruct", help="the model that solves the problems"
    )
    parser.add_argument("--verifier", default=None, help="the base of the verifier; default: that of --base")
    parser.add_argument("--questions", type=int, default=1024, help="how many questions of GSM8K, at most")
    parser.add_argument("--sampling", type=float, default=150.0, help="seconds after which no more problems are solved")
    parser.add_argument("--lr", type=float, default=3e-5, help="learning rate")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds")
    parser.add_argument(
        "--balance",
        choices=("none", "length"),
        default="none",
        help="length: judges learn from as many HH pairs that the longer reply won as pairs that the shorter one won",
    )
    parser.add_argument("--minutes", type=float, default=25.0, help="begin nothing new after this many minutes")
    parser.add_argument("--out", type=Path, default=Path("judges.json"), help="file of the results")
    parser.add_argument("--tiny", action="store_true", help="tiny models on a CPU: only checks that it runs")
    args = parser.parse_args()
    if strange := [p for p in args.parts if p not in PARTS]:
        parser.error(f"'{strange[0]}' is no part; expected some of {', '.join(PARTS)}")
    logging.disable_progress_bar()
    bench = Bench(args)
    for part in args.parts or PARTS:
        for seed in range(args.seeds):
            if bench.late():
                print(f"out of time before {part} seed {seed}; call again to go on")
                return
            if str(seed) not in bench.done.get(part, {}):
                bench.note(part, seed, getattr(bench, part)(seed))
        if part == "folds":
            print(pooled(list(bench.done["folds"].values())))


if __name__ == "__main__":
    main()
