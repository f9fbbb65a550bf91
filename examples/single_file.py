"""The whole idea of Interplay in one file: a language model learns tic-tac-toe by playing against itself.

    python examples/single_file.py --steps 30 --games 32 --seed 0

Nothing is downloaded; torch, transformers and the standard library are enough. The package does the same for real
models, many roles and many machines, but a datum walks the same way there, and the loop in `main` is that walk:
tasks → rollout → reward → score → credit → batch → step → publish → log.

A *role* (X or O) is a seat at the board; a *policy* holds weights and sits in seats. Here one policy sits in both: it
is its own opponent and its own teacher, and at first it does not even know that a cell has to be empty.
"""

import argparse
import copy
import random
import time
from dataclasses import dataclass
from statistics import fmean

import torch
from transformers import LlamaConfig, LlamaForCausalLM

# A token is a character. An empty cell shows its number, which is also the move; a taken one shows its letter, A to I
# if it is mine and a to i if it is theirs: "12C4e6789X" is my mark on cell 3, theirs on cell 5, and I am X, to move.
# Attention adds up what it sees: letters that say *what and where* are learned far faster than nine X's all alike.
VOCABULARY = "123456789ABCDEFGHIabcdefghiXO"
LINES = [set(line) for line in ("ABC", "DEF", "GHI", "ADG", "BEH", "CFI", "AEI", "CEG")]

CANDIDATES = 8  # replies to each prompt
MINIBATCHES = 8  # optimiser steps per batch of games
CLIP = 0.2  # how far one batch may move a probability
PULL = 0.03  # how strongly the start holds the policy: at 0 it soon has one favourite move, and never learns to block

Ids = tuple[int, ...]
Reply = tuple[int, float]  # a token and its log-prob


class TicTacToe:
    """The environment. It knows the rules and nothing about models: text goes out, text comes in."""

    def __init__(self) -> None:
        self.board, self.role = "123456789", "X"
        self.winner: str | None = None
        self.over = self.illegal = False

    def observe(self) -> str:
        return self.board + self.role

    def step(self, text: str) -> None:
        other = "O" if self.role == "X" else "X"
        if text not in self.board or not text.isdigit():
            self.over, self.illegal, self.winner = True, True, other  # a bad reply is an outcome, never an error
            return
        self.board = self.board.replace(text, "ABCDEFGHI"[int(text) - 1])
        if any(line <= set(self.board) for line in LINES):
            self.winner = self.role
        self.over = self.winner is not None or self.board.isalpha()
        self.board, self.role = self.board.swapcase(), other  # what was mine is theirs to the other

    def outcome(self, role: str) -> float:
        if self.winner is None:
            return 0.0
        return 1.0 if role == self.winner else -1.0 - self.illegal  # breaking the rules costs more than losing by them

    def fork(self) -> "TicTacToe":
        """An independent copy (every field is immutable). Asking "what if?" is what makes credit per move possible."""
        return copy.copy(self)


class Policy:
    """Weights, and the engine that samples from them: learner and sampler share the very same tensors."""

    def __init__(self, model: LlamaForCausalLM) -> None:
        self.model, self.version = model, 0
        self.cache: dict[Ids, torch.Tensor] = {}

    def logprobs(self, prompts: list[Ids]) -> torch.Tensor:
        """As the learner sees them, [P, V]. Every prompt has ten tokens: a batch is a rectangle, without padding."""
        return self.model(torch.tensor(prompts), logits_to_keep=1).logits[:, -1].log_softmax(-1)

    @torch.no_grad()
    def cached(self, prompts: list[Ids]) -> torch.Tensor:
        """As the sampler sees them: a prompt that was met since the last update is not computed again."""
        if missing := [p for p in dict.fromkeys(prompts) if p not in self.cache]:
            self.cache.update(zip(missing, self.logprobs(missing), strict=True))
        return torch.stack([self.cache[p] for p in prompts])

    def sample(self, prompts: list[Ids], k: int) -> list[list[Reply]]:
        """k replies to each prompt. A reply is one token, the number of a cell, so there is nothing to decode after."""
        logp = self.cached(prompts)
        tokens = torch.multinomial(logp.exp(), k, replacement=True)
        pairs = zip(tokens.tolist(), logp.gather(1, tokens).tolist(), strict=True)
        return [list(zip(*pair, strict=True)) for pair in pairs]


class RandomBot:
    """A random legal move: first the teacher, later the yardstick."""

    def sample(self, prompts: list[Ids], k: int) -> list[list[Reply]]:
        return [[(random.choice([token for token in p if token < 9]), 0.0) for _ in range(k)] for p in prompts]


@dataclass
class Game:
    env: TicTacToe
    seats: dict[str, Policy | RandomBot]  # who sits where is data, and the environment never knows


@dataclass
class Turn:
    """One reply. Its ids are trained on as they were sampled: text, tokenised again, may come out as other tokens."""

    role: str
    prompt: Ids
    action: int
    logprob: float  # under the policy that sampled it
    game: Game  # a fork, in which this reply was given
    outlook: float = 0.0  # what the fork ended in, for this role
    ref_logprob: float = 0.0  # under the policy as it was at the start
    advantage: float = 0.0


def ask(games: list[Game], k: int) -> list[tuple[Game, Ids, list[Reply]]]:
    """k replies for each game. Games wait for each other, so that a player answers in all of its games at once."""
    asked: list[tuple[Game, Ids, list[Reply]]] = []
    for player in dict.fromkeys(game.seats[game.env.role] for game in games):
        mine = [game for game in games if game.seats[game.env.role] is player]
        prompts = [tuple(map(VOCABULARY.index, game.env.observe())) for game in mine]
        asked += zip(mine, prompts, player.sample(prompts, k), strict=True)
    return asked


def play_out(games: list[Game]) -> None:
    while live := [game for game in games if not game.env.over]:
        for game, _, [(token, _)] in ask(live, 1):
            game.env.step(VOCABULARY[token])


# -- the walk of one datum --------------------------------------------------------------------------------------------


def tasks(count: int, policy: Policy, start: Policy) -> list[Game]:
    """Half is self-play. In the rest one seat holds the frozen start: it still makes the mistakes that the policy has
    given up, and that must not be forgotten how to punish."""
    seatings = [(policy, policy), (policy, start), (policy, policy), (start, policy)]
    return [Game(TicTacToe(), dict(zip("XO", seatings[i % 4], strict=True))) for i in range(count)]


def rollout(games: list[Game], player: Policy | RandomBot, k: int) -> list[list[Turn]]:
    """At every decision k replies to one prompt, each on a fork of its own; one fork is kept and goes on."""
    groups = []
    while live := [game for game in games if not game.env.over]:
        for game, prompt, replies in ask(live, k):
            group = [Turn(game.env.role, prompt, *reply, Game(game.env.fork(), game.seats)) for reply in replies]
            for turn in group:
                turn.game.env.step(VOCABULARY[turn.action])
            if game.seats[game.env.role] is player:
                groups.append(group)
            # Any of them, not the best: what is trained on are then the positions this policy really gets into.
            game.env = random.choice(group).game.env.fork()
    return groups


def reward(groups: list[list[Turn]]) -> None:
    """A reply is worth what its fork ends in, played out once by the same seats. Those moves are not trained on."""
    play_out([turn.game for group in groups for turn in group])
    for turn in (turn for group in groups for turn in group):
        turn.outlook = turn.game.env.outcome(turn.role)


def score(groups: list[list[Turn]], start: Policy) -> None:
    """What else the loss will need: how likely the frozen start was to say the same."""
    for group, logp in zip(groups, start.cached([group[0].prompt for group in groups]).tolist(), strict=True):
        for turn in group:
            turn.ref_logprob = logp[turn.action]


def credit(groups: list[list[Turn]]) -> None:
    """AT-GRPO (arXiv 2510.11062): advantage = return − mean of the group, a group being the candidates of one decision.

    All answered the *same* position: a good opening is not blamed for a later blunder, and no critic is needed.
    """
    for group in groups:
        mean = fmean(turn.outlook for turn in group)
        for turn in group:  # the same move leads to the same place: its candidates share their luck
            turn.advantage = fmean(t.outlook for t in group if t.action == turn.action) - mean


def batch(groups: list[list[Turn]]) -> list[list[Turn]]:
    """Minibatches of whole groups, shuffled: the positions of one game are too alike to be learned from together."""
    random.shuffle(groups)
    return [sum(groups[i::MINIBATCHES], []) for i in range(min(MINIBATCHES, len(groups)))]


def step(policy: Policy, optimizer: torch.optim.Optimizer, minibatches: list[list[Turn]]) -> tuple[float, float]:
    """The clipped policy gradient (arXiv 1707.06347, eq. 7) with a pull to the start; returns the gap and the entropy."""
    with torch.no_grad():  # what the learner thinks of these replies before anything moves
        before = [learn(policy, turns)[0] for turns in minibatches]
    sampled = torch.tensor([turn.logprob for turns in minibatches for turn in turns])
    gap, entropy = (torch.cat(before) - sampled).abs().max().item(), 0.0
    if gap > 1e-4:  # a stale cache, other weights, other tokens: the gradient would be that of another policy
        raise SystemExit(f"the learner's log-probs differ from the sampler's by {gap:.1e}; expected less than 1e-4.")
    for turns, old in zip(minibatches, before, strict=True):
        advantage, ref = torch.tensor([(turn.advantage, turn.ref_logprob) for turn in turns]).T
        logp, spread = learn(policy, turns)
        ratio = (logp - old).exp()
        gain = torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage)
        pull = 0.5 * (logp - ref) ** 2  # over replies that the policy sampled, its gradient is that of KL(π ‖ π_start)
        # One weight for every turn of the step: how the batch is cut must not decide how much a turn counts.
        weight = len(minibatches) / len(sampled)
        update(policy, optimizer, weight * (PULL * pull - gain).sum())
        entropy += spread.sum().item() / len(sampled)
    return gap, entropy


def learn(policy: Policy, turns: list[Turn]) -> tuple[torch.Tensor, torch.Tensor]:
    """log π(action | prompt) and the entropy, per turn. Turns of a group share their prompt, which is run once."""
    row = {prompt: i for i, prompt in enumerate(dict.fromkeys(turn.prompt for turn in turns))}
    logp = policy.logprobs(list(row))[[row[turn.prompt] for turn in turns]]
    return logp[range(len(turns)), [turn.action for turn in turns]], -(logp.exp() * logp).sum(-1)


def update(policy: Policy, optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(policy.model.parameters(), 1.0)
    optimizer.step()


def publish(policy: Policy) -> None:
    """The sampler's weights are the learner's, so nothing is copied; but what it remembers is out of date."""
    policy.version += 1
    policy.cache.clear()


def log(n: int, games: list[Game], gap: float, entropy: float, seconds: float) -> None:
    illegal = fmean(game.env.illegal for game in games)
    draws = fmean(game.env.winner is None for game in games)
    scores = f"draws {draws:4.0%}  illegal {illegal:4.0%}  entropy {entropy:.2f}  gap {gap:.1e}"
    print(f"step {n:3}  {scores}  {seconds:.1f} s", flush=True)


# -- the run ----------------------------------------------------------------------------------------------------------


def imitate(policy: Policy, lr: float = 1.5e-3, games: int = 2500, size: int = 128) -> None:
    """Random legal play, imitated: what a move *is*, and nothing about which is good. Without it nearly all games end at
    the first move, and a group in which all fail alike teaches nothing."""
    optimizer, bot = torch.optim.AdamW(policy.model.parameters(), lr, weight_decay=0.0), RandomBot()
    groups = rollout([Game(TicTacToe(), {"X": bot, "O": bot}) for _ in range(games)], bot, k=1)
    turns = random.sample([turn for [turn] in groups], len(groups))
    for i in range(0, len(turns), size):
        update(policy, optimizer, -learn(policy, turns[i : i + size])[0].mean())
    publish(policy)


def evaluate(policy: Policy, when: str, count: int = 500) -> None:
    """Against random legal play, from both seats. (Of two random players X wins 58% and O 29%.)"""
    bot, line = RandomBot(), f"{when:9}"
    for role in "XO":
        games = [Game(TicTacToe(), {"X": bot, "O": bot} | {role: policy}) for _ in range(count)]
        play_out(games)
        win, illegal = (fmean(map(f, games)) for f in (lambda g: g.env.winner == role, lambda g: g.env.illegal))  # noqa: B023
        line += f"  as {role}: wins {win:.1%}, illegal {illegal:.1%}"
    print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=30, help="training steps")
    parser.add_argument("--games", type=int, default=32, help="games per step")
    parser.add_argument("--seed", type=int, default=0, help="decides everything that is random")
    parser.add_argument("--lr", type=float, default=1e-3, help="learning rate of self-play, falling to zero")
    args = parser.parse_args()
    random.seed(args.seed)
    torch.manual_seed(args.seed)

    shape = {"hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4}
    rope = {"rope_type": "default", "rope_theta": 100.0}  # ten positions, not ten thousand: make neighbours differ
    config = LlamaConfig(vocab_size=len(VOCABULARY), **shape, initializer_range=0.1, rope_parameters=rope)
    policy = Policy(LlamaForCausalLM(config))
    evaluate(policy, "untrained")
    imitate(policy)
    evaluate(policy, "before")

    start = Policy(copy.deepcopy(policy.model))  # frozen: nothing ever updates it, so its cache never goes stale
    optimizer = torch.optim.AdamW(policy.model.parameters(), args.lr, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, args.steps)
    for n in range(1, args.steps + 1):
        began = time.monotonic()
        games = tasks(args.games, policy, start)
        groups = rollout(games, policy, CANDIDATES)
        reward(groups)
        score(groups, start)
        credit(groups)
        gap, entropy = step(policy, optimizer, batch(groups))
        schedule.step()
        publish(policy)
        log(n, games, gap, entropy, time.monotonic() - began)
    evaluate(policy, "after")


if __name__ == "__main__":
    main()
