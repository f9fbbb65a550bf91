"""Small networks that some algorithms fit beside the policies: utilities, mixers, central critics. Imported lazily.

Inputs are bags of hashed words (`replay.py`). Output layers start at zero, so an untrained network gives no advantage
to anything. The networks run on the CPU, because they are tiny compared with a language model.
"""

from __future__ import annotations

import base64
import copy
import io
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from interplay.algorithms.replay import BUCKETS, Bag, Move, Step, bag, said

WIDTH = 32


class Words(nn.Module):
    """Turns bags of words into vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(BUCKETS, WIDTH, mode="sum")
        nn.init.normal_(self.table.weight, std=0.5)

    def forward(self, bags: Sequence[Bag]) -> Tensor:
        starts: list[int] = []
        flat: list[int] = []
        for words in bags:
            starts.append(len(flat))
            flat += words
        return self.table(torch.tensor(flat, dtype=torch.long), torch.tensor(starts, dtype=torch.long))


def head(width: int) -> nn.Sequential:
    last = nn.Linear(WIDTH, 1)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(nn.Linear(width, WIDTH), nn.ReLU(), last)


class Mixer(nn.Module):
    """QMIX's mixer (1803.11485, sec. 4). Its weights are computed from the state and made non-negative, so that
    ∂Q_tot/∂Q_i ≥ 0 everywhere."""

    def __init__(self, roles: int, hidden: int = 16) -> None:
        super().__init__()
        self.roles, self.hidden = roles, hidden
        self.first, self.first_bias = nn.Linear(WIDTH, roles * hidden), nn.Linear(WIDTH, hidden)
        self.second, self.second_bias = nn.Linear(WIDTH, hidden), head(WIDTH)

    def forward(self, utilities_BR: Tensor, state_BW: Tensor) -> Tensor:
        first = self.first(state_BW).abs().view(-1, self.roles, self.hidden)
        mixed = F.elu((utilities_BR.unsqueeze(2) * first).sum(1) + self.first_bias(state_BW))
        return (mixed * self.second(state_BW).abs()).sum(1) + self.second_bias(state_BW).squeeze(1)


class TeamValue(nn.Module):
    """Q_tot of a joint action, computed from a utility Q_i(h_i, a_i) of each role: by a sum (VDN) or a mixer (QMIX)."""

    def __init__(self, roles: Sequence[str], mixed: bool) -> None:
        super().__init__()
        self.roles = list(roles)
        self.words, self.state_words = Words(), Words()
        self.utility = head(2 * WIDTH)
        self.mixer = Mixer(len(roles)) if mixed else None

    def utilities(self, asked: Sequence[tuple[Move, str]]) -> Tensor:
        """Q_i(h_i, a) for each pair of a move (which holds the history h_i) and an action a."""
        known = self.words([move.history for move, _ in asked])
        done = self.words([said(action) for _, action in asked])
        return self.utility(torch.cat([known, done], dim=1)).squeeze(1)

    def table(self, steps: Sequence[Step], choose: Callable[[Move], str] = lambda move: move.action) -> Tensor:
        """Utilities [B, R] of the chosen actions. A role that waits has the utility of waiting; a role that was never
        asked before has 0."""
        where, asked = [], []
        for b, step in enumerate(steps):
            for move in step.moves + step.idle:
                where.append(b * len(self.roles) + self.roles.index(move.role))
                asked.append((move, choose(move)))
        flat = torch.zeros(len(steps) * len(self.roles))
        return flat.index_add(0, torch.tensor(where), self.utilities(asked)).view(len(steps), -1)

    def total(self, utilities_BR: Tensor, steps: Sequence[Step]) -> Tensor:
        if self.mixer is None:
            return utilities_BR.sum(1)
        return self.mixer(utilities_BR, self.state_words([bag("state", step.state) for step in steps]))

    @torch.no_grad()
    def greedy(self, steps: Sequence[Step]) -> Tensor:
        """The maximum of Q_tot over legal joint actions. Q_tot never falls when a Q_i rises, so it is enough that each
        role takes its own best action."""
        asked = [(move, action) for step in steps for move in step.moves + step.idle for action in move.legal]
        values = iter(self.utilities(asked).tolist())
        best: dict[int, str] = {}
        for step in steps:
            for move in step.moves + step.idle:
                best[id(move)] = max(((next(values), a) for a in move.legal), key=lambda pair: pair[0])[1]
        return self.total(self.table(steps, lambda move: best[id(move)]), steps)


class CentralCritic(nn.Module):
    """Q_i(s, a_1 … a_n) of one role. It does not split the value into parts per role, as VDN and QMIX do."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.value = Words(), head(WIDTH)

    def forward(self, joints: Sequence[tuple[str, Sequence[tuple[str, str]]]]) -> Tensor:
        """One value for each (state, ((role, action), …))."""
        bags = [bag(f"state:{state}", *(f"{role}={action}" for role, action in acts)) for state, acts in joints]
        return self.value(torch.relu(self.words(bags))).squeeze(1)


class Network:
    """A module with its target copy and its optimiser, which are saved together."""

    def __init__(self, build: Callable[[], nn.Module], lr: float, seed: int) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.module = build()
        self.target = copy.deepcopy(self.module)
        self.optimizer = torch.optim.Adam(self.module.parameters(), lr=lr)

    def descend(self, loss: Tensor) -> float:
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.module.parameters(), 10.0)
        self.optimizer.step()
        return loss.item()

    def sync(self) -> None:
        self.target.load_state_dict(self.module.state_dict())

    def state_dict(self) -> str:
        """The whole state, bit for bit, as one base64 text, because an algorithm's state must be plain JSON."""
        parts = [self.module.state_dict(), self.target.state_dict(), self.optimizer.state_dict()]
        buffer = io.BytesIO()
        torch.save(parts, buffer)
        return base64.b64encode(buffer.getvalue()).decode()

    def load_state_dict(self, state: str) -> None:
        parts = torch.load(io.BytesIO(base64.b64decode(state)), weights_only=True)
        self.module.load_state_dict(parts[0])
        self.target.load_state_dict(parts[1])
        self.optimizer.load_state_dict(parts[2])
