"""The whole idea of Interplay in one file: a language model learns tic-tac-toe by playing against itself.

    python examples/single_file.py --steps 30 --games 32 --seed 0

Nothing is downloaded; torch, transformers and the standard library are enough. The package does the same for real
models, many roles and many machines. A training step has the same parts there, in the order of the loop in `main`:
tasks → rollout → reward → score → credit → batch → step → publish → log. A *role* is X or O. A *policy* holds weights
and plays roles. Here one policy plays both roles, so it is its own opponent.
"""

import argparse
import copy
import random
import time
from collections import defaultdict
from dataclasses import dataclass
from itertools import chain
from statistics import fmean

import torch
from transformers import LlamaConfig, LlamaForCausalLM, set_seed

# A token is a character. An empty cell shows its number, which is also the move; a taken one shows its letter, A to I
# if it is mine and a to i if it is theirs: "12C4e6789X" is my mark on cell 3, theirs on cell 5, and I am X, to move.
# A letter that also names the cell is learned far faster than the same letter for all nine cells.
VOCABULARY = "123456789ABCDEFGHIabcdefghiXO"
LINES = [set(line) for line in ("ABC", "DEF", "GHI", "ADG", "BEH", "CFI", "AEI", "CEG")]
CANDIDATES = 8  # replies to each prompt
MINIBATCHES = 8  # optimiser steps per batch of games
CLIP = 0.2  # how far one batch may move a probability
PULL = 0.03  # weight of the KL penalty to the start; at 0 all candidates are soon the same and nothing is learned
Ids = tuple[int, ...]


class TicTacToe:
    """The environment. It knows the rules and nothing about models: it gives text and takes text."""

    board, role, winner, over, illegal = "123456789", "X", None, False, False  # how every game begins

    def observe(self) -> str:
        return self.board + self.role

    def step(self, text: str) -> None:
        other = "O" if self.role == "X" else "X"
        if text not in self.board or not text.isdigit():
            self.over, self.illegal, self.winner = True, True, other  # an illegal reply loses; it is not an error
            return
        self.board = self.board.replace(text, "ABCDEFGHI"[int(text) - 1])
        if any(line <= set(self.board) for line in LINES):
            self.winner = self.role
        self.over = self.winner is not None or self.board.isalpha()
        self.board, self.role = self.board.swapcase(), other  # the other role sees my marks as theirs

    def outcome(self, role: str) -> float:
        lost = -1.0 - self.illegal  # an illegal reply costs more than a lost game
        return 0.0 if self.winner is None else 1.0 if self.winner == role else lost

    def fork(self) -> "TicTacToe":
        """An independent copy (every field is immutable), to try several moves from the same position."""
        return copy.copy(self)


class Policy:
    """Weights, and the engine that samples from them. Learner and sampler use the same tensors."""

    def __init__(self, model: LlamaForCausalLM) -> None:
        self.model, self.version = model, 0
        self.cache: dict[Ids, torch.Tensor] = {}

    def logprobs(self, prompts: list[Ids]) -> torch.Tensor:
        """The learner's log-probs, [P, V]. Every prompt has ten tokens, so a batch needs no padding."""
        return self.model(torch.tensor(prompts), logits_to_keep=1).logits[:, -1].log_softmax(-1)

    def learn(self, turns: list["Turn"]) -> torch.Tensor:
        """log π(action | prompt) of each turn. The turns of a group share their prompt, which is run once."""
        row = {prompt: i for i, prompt in enumerate(dict.fromkeys(turn.prompt for turn in turns))}
        return self.logprobs(list(row))[[row[turn.prompt] for turn in turns], [turn.action for turn in turns]]

    @torch.no_grad()
    def cached(self, prompts: list[Ids]) -> torch.Tensor:
        """The sampler's log-probs. A prompt that was computed since the last update is not computed again."""
        if missing := [p for p in dict.fromkeys(prompts) if p not in self.cache]:
            self.cache.update(zip(missing, self.logprobs(missing), strict=True))
        return torch.stack([self.cache[p] for p in prompts])

    def sample(self, prompts: list[Ids], k: int) -> list[list[tuple[int, float]]]:
        """k replies to each prompt, with their log-probs. A reply is one token, the number of a cell."""
        logp = self.cached(prompts)
        tokens = torch.multinomial(logp.exp(), k, replacement=True)
        pairs = zip(tokens.tolist(), logp.gather(1, tokens).tolist(), strict=True)
        return [list(zip(*pair, strict=True)) for pair in pairs]


class RandomBot:
    """Plays random legal moves. It is imitated first, and is the opponent in the evaluation later."""

    def sample(self, prompts: list[Ids], k: int) -> list[list[tuple[int, float]]]:
        return [[(random.choice([token for token in p if token < 9]), 0.0) for _ in range(k)] for p in prompts]


@dataclass
class Game:
    env: TicTacToe
    seats: dict[str, Policy | RandomBot]  # who plays which role; the environment does not know it


@dataclass
class Turn:
    """One reply. Its sampled ids are trained on, because tokenising its text again could give other tokens."""

    role: str
    prompt: Ids
    action: int
    logprob: float  # under the policy that sampled it
    game: Game  # a fork, in which this reply was given
    outlook: float = 0.0  # the outcome of the fork for this role
    ref_logprob: float = 0.0  # under the policy as it was at the start
    advantage: float = 0.0


# The next nine functions are the parts of a training step, in order.
def tasks(count: int, policy: Policy, start: Policy) -> list[Game]:
    """Half of the games are self-play. In the others the frozen start has one seat, so that the policy does not forget
    how to beat a beginner."""
    seatings = [(policy, policy), (policy, start), (policy, policy), (start, policy)]
    return [Game(TicTacToe(), dict(zip("XO", seatings[i % 4], strict=True))) for i in range(count)]


def rollout(games: list[Game], learner: Policy | RandomBot | None = None, k: int = 1) -> list[list[Turn]]:
    """At every decision, sample k replies to one prompt, each on a fork of its own. One fork is kept and continued.
    Returns the turns of `learner`, in groups of k. (With k = 1 and no learner, the games are played to the end.)"""
    groups = []
    while live := [game for game in games if not game.env.over]:
        waiting = defaultdict(list)  # by player, so that each player answers in all of its games in one batch
        for game in live:
            waiting[game.seats[game.env.role]].append(game)
        for player, mine in waiting.items():
            prompts = [tuple(map(VOCABULARY.index, game.env.observe())) for game in mine]
            for game, prompt, replies in zip(mine, prompts, player.sample(prompts, k), strict=True):
                group = [Turn(game.env.role, prompt, *reply, Game(game.env.fork(), game.seats)) for reply in replies]
                for turn in group:
                    turn.game.env.step(VOCABULARY[turn.action])
                if player is learner:
                    groups.append(group)
                # A random one, not the best: so the policy is trained on positions that its own play reaches.
                game.env = random.choice(group).game.env
    return groups


def reward(groups: list[list[Turn]]) -> None:
    """A reply earns the outcome of its fork, played out once by the same seats. These moves are not trained on."""
    rollout([turn.game for turn in chain(*groups)])
    for turn in chain(*groups):
        turn.outlook = turn.game.env.outcome(turn.role)


def score(groups: list[list[Turn]], start: Policy) -> None:
    """The loss also needs the log-prob of every reply under the frozen start."""
    for turn, logp in zip(chain(*groups), start.cached([t.prompt for t in chain(*groups)]).tolist(), strict=True):
        turn.ref_logprob = logp[turn.action]


def credit(groups: list[list[Turn]]) -> None:
    """AT-GRPO (arXiv 2510.11062): advantage = return − mean of the group. A group is the candidates of one decision.
    They answer the same position, so a good opening is not blamed for a later mistake, and no critic is needed."""
    for group in groups:
        mean = fmean(turn.outlook for turn in group)
        for turn in group:  # candidates with the same move share the mean of their returns
            turn.advantage = fmean(t.outlook for t in group if t.action == turn.action) - mean


def batch(groups: list[list[Turn]]) -> list[list[Turn]]:
    """Shuffled minibatches of whole groups, because the positions of one game are too similar for one minibatch."""
    random.shuffle(groups)
    return [list(chain(*groups[i::MINIBATCHES])) for i in range(min(MINIBATCHES, len(groups)))]


def step(policy: Policy, optimizer: torch.optim.Optimizer, minibatches: list[list[Turn]]) -> float:
    """The clipped policy gradient (arXiv 1707.06347, eq. 7) with a KL penalty to the start. Returns the largest
    difference between the learner's and the sampler's log-probs."""
    turns = list(chain(*minibatches))
    with torch.no_grad():  # before the update, learner and sampler must have the same log-probs
        gap = (policy.learn(turns) - torch.tensor([turn.logprob for turn in turns])).abs().max().item()
    if gap > 1e-4:  # the gradient would be that of another policy
        raise SystemExit(f"the learner's log-probs differ from the sampler's by {gap:.1e}; expected less than 1e-4.")
    weight = len(minibatches) / len(turns)  # the same for all turns, however the batch is divided
    for part in minibatches:
        logp = policy.learn(part)
        old, ref, advantage = torch.tensor([(turn.logprob, turn.ref_logprob, turn.advantage) for turn in part]).T
        ratio = (logp - old).exp()
        gain = torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage)
        pull = 0.5 * (logp - ref) ** 2  # in the mean over sampled replies, its gradient is that of KL(π ‖ π_start)
        optimizer.zero_grad()
        (weight * (PULL * pull - gain)).sum().backward()
        torch.nn.utils.clip_grad_norm_(policy.model.parameters(), 1.0)
        optimizer.step()
    return gap


def publish(policy: Policy) -> None:
    """Sampler and learner share their weights, so nothing is copied, but the cached log-probs are out of date."""
    policy.version += 1
    policy.cache.clear()


def log(policy: Policy, games: list[Game], groups: list[list[Turn]], gap: float, seconds: float) -> None:
    duels = [game for game in games if len(set(game.seats.values())) == 2]
    wins = f"{sum(game.seats.get(game.env.winner) is policy for game in duels)} of {len(duels)}"
    entropy = -fmean(turn.logprob for turn in chain(*groups))
    print(f"step {policy.version:3}  beats its start {wins}  entropy {entropy:.2f}  gap {gap:.1e}  {seconds:.1f} s")


def imitate(policy: Policy, games: int = 2500, size: int = 128) -> None:
    """Imitating random legal play teaches which moves are legal, not which ones are good. Without it nearly all games
    would end at the first move, and a group in which all candidates fail teaches nothing."""
    optimizer, bot = torch.optim.AdamW(policy.model.parameters(), lr=1.5e-3, weight_decay=0.0), RandomBot()
    groups = rollout([Game(TicTacToe(), {"X": bot, "O": bot}) for _ in range(games)], bot)
    turns = random.sample([turn for [turn] in groups], len(groups))
    for i in range(0, len(turns), size):
        optimizer.zero_grad()
        (-policy.learn(turns[i : i + size]).mean()).backward()
        optimizer.step()
    policy.cache.clear()


def evaluate(policy: Policy, when: str, count: int = 500) -> None:
    """Against random legal play, from both seats. (Of two random players X wins 58% and O 29%.)"""
    bot, report = RandomBot(), f"{when:9}"
    for role in "XO":
        games = [Game(TicTacToe(), {"X": bot, "O": bot, role: policy}) for _ in range(count)]
        rollout(games)
        wins, forfeits = sum(g.env.winner == role for g in games), sum(g.env.illegal for g in games)
        report += f"  as {role}: wins {wins / count:.1%} illegal {forfeits / count:.1%}"
    print(report, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Tic-tac-toe by self-play, from random weights.")
    parser.add_argument("--steps", type=int, default=30, help="training steps")
    parser.add_argument("--games", type=int, default=32, help="games per step")
    parser.add_argument("--seed", type=int, default=0, help="seed of all random numbers")
    args = parser.parse_args()
    set_seed(args.seed)
    # A Llama with 135,000 weights. Prompts have only ten tokens, so a small theta tells their positions apart better.
    shape = {"hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4}
    rope = {"rope_type": "default", "rope_theta": 100.0}
    config = LlamaConfig(vocab_size=len(VOCABULARY), initializer_range=0.1, rope_parameters=rope, **shape)
    policy = Policy(LlamaForCausalLM(config))
    evaluate(policy, "untrained")
    imitate(policy)
    evaluate(policy, "before")
    start = Policy(copy.deepcopy(policy.model))  # frozen, so its cache never needs clearing
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=2e-3, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, args.steps)
    for _ in range(args.steps):
        began = time.monotonic()
        games = tasks(args.games, policy, start)
        groups = rollout(games, policy, CANDIDATES)
        reward(groups)
        score(groups, start)
        credit(groups)
        gap = step(policy, optimizer, batch(groups))
        schedule.step()
        publish(policy)
        log(policy, games, groups, gap, time.monotonic() - began)
    evaluate(policy, "after")


if __name__ == "__main__":
    main()
