"""Reward models and verifiers: a trunk with a head that gives a conversation one number.

A reward model is trained on comparisons, with the loss −log σ(s_better − s_worse) (Bradley–Terry). A verifier is
trained on answers that are right or wrong, with the loss −log σ(±s). Each has its own copy of the weights, or its own
adapter on a frozen base. On disk it is a Hugging Face model for sequence classification with one label; an adapter is
merged into the weights.
"""

from __future__ import annotations

import copy
import hashlib
import json
import logging
import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

from interplay.config import AdapterSection, TrainSection
from interplay.engines.codec import TokenCodec
from interplay.errors import ModelError, counted
from interplay.models.adapter import Adapter
from interplay.models.attention import NAME as ATTENTION
from interplay.models.latch import Latch
from interplay.models.load import FALLBACK_TEMPLATE, Loaded, load
from interplay.models.stacked import layers
from interplay.models.staging import to_device
from interplay.rollout.members import fresh_adapter
from interplay.training.forward import AdapterMixer, hidden_states, pieces
from interplay.training.masters import Masters
from interplay.training.optimizers import clipped_step, load_moments, make_optimizer
from interplay.training.tries import Example
from interplay.types import Message, Sample, seed_of

ModelKind = Literal["reward_model", "verifier"]
Conversation = tuple[tuple[Message, ...], str]  # what was asked, and the reply
log = logging.getLogger("interplay")

_REMEMBERED = 100_000  # conversations whose tokens are kept
NOTES = "interplay.json"  # a file beside the model, with values for which Hugging Face's format has no place


@dataclass(frozen=True, slots=True)
class Better:
    """Two conversations, the first better with probability `label`: 1, or ½ for a tie. For a verifier `worse` is None
    and `label` says whether the answer is right."""

    better: Conversation
    worse: Conversation | None = None
    label: float = 1.0


@dataclass(frozen=True)
class Fitting:
    """How a reward model is trained."""

    epochs: int = 2
    batch: int = 64
    lr: float = 1e-3
    seed: int = 0


class RewardModel:
    """Only differences of a reward model's scores mean anything. So that versions can be compared, its scores have mean
    0 and deviation 1 over `anchors`, conversations of its first training. A verifier's score is the probability that
    an answer is right."""

    def __init__(
        self, kind: ModelKind, loaded: Loaded, config: TrainSection, adapter: Adapter | None = None, longest: int = 1024
    ) -> None:
        self.kind, self.loaded, self.config, self.longest = kind, loaded, config, longest
        self._told = False  # that conversations are too long
        self.model, self.tokenizer = loaded.model, loaded.tokenizer
        self.device = next(self.model.parameters()).device
        self.head = nn.Linear(self.model.config.get_text_config().hidden_size, 1, bias=False).to(self.device)
        nn.init.zeros_(self.head.weight)
        self.adapters: dict[str, Adapter] = {}
        if adapter is None:
            self.module = nn.ModuleDict({"trunk": self.model.base_model, "head": self.head})
        else:
            self.model.requires_grad_(False)
            own = {n: (nn.Parameter(down), nn.Parameter(up)) for n, (down, up) in sorted(adapter.weights.items())}
            self.adapters = {"": replace(adapter, weights=own)}
            tensors = nn.ParameterList([t for pair in own.values() for t in pair])
            self.module = nn.ModuleDict({"adapter": tensors, "head": self.head})
        self.masters = Masters(self.module.parameters())
        self.optimizer: torch.optim.Optimizer | None = None
        self.latch = Latch(self.device.type == "cuda")
        self._computing = threading.Lock()  # held while one of several threads starts its work on the device
        self.centre, self.scale, self.version = 0.0, 1.0, 0
        self.temperature = 1.0  # of its probabilities, fitted on held-out rows
        self.anchors: list[Conversation] = []
        self._codec = TokenCodec(self.tokenizer)
        self._ids: dict[Conversation, tuple[int, ...]] = {}  # every conversation is tokenised once

    # -- reading --------------------------------------------------------------------------------------------------

    def read(self, conversations: Sequence[Conversation]) -> list[tuple[int, ...]]:
        """The tokens of conversations as the model's template writes them. Of a long conversation, only the last
        `longest` tokens are used. New conversations are tokenised together, on several threads."""
        rows = [self._ids.get(c) for c in conversations]
        new = list(dict.fromkeys(c for c, ids in zip(conversations, rows, strict=True) if ids is None))
        known: dict[Conversation, tuple[int, ...]] = {}
        if new:
            chats = [
                [{"role": m.role, "content": m.content} for m in (*question, Message("assistant", reply))]
                for question, reply in new
            ]
            texts = self.tokenizer.apply_chat_template(chats, tokenize=False)
            encoded = self._codec.encode_all(texts)
            self._tell_of_long(encoded)
            known = {c: ids[-self.longest :] for c, ids in zip(new, encoded, strict=True)}
            if len(self._ids) + len(known) > _REMEMBERED:
                self._ids.clear()
            self._ids.update(known)
        return [known[c] if ids is None else ids for c, ids in zip(conversations, rows, strict=True)]

    def _tell_of_long(self, rows: Sequence[Sequence[int]]) -> None:
        cut = sum(len(ids) > self.longest for ids in rows)
        if cut and not self._told:
            self._told = True
            log.warning(
                "the reward model reads only the last %s tokens of %s of %s, which are longer; their questions may be "
                "left out. This warning is not repeated.", f"{self.longest:,}", cut, counted(len(rows), "conversation"),
            )  # fmt: skip

    def _scores(self, conversations: Sequence[Conversation]) -> Tensor:
        """The head's output for each, with its graph."""
        rows = self.read(conversations)
        examples = [Example("", Sample(str(i), ids, (), (), (), "")) for i, ids in enumerate(rows)]
        mixer = self._mixer = AdapterMixer(self.model, self.adapters)
        found: list[Tensor] = []
        order: list[int] = []
        for batch in pieces(self.model, examples, self.config.micro_batch_tokens, actions=False):
            hidden = hidden_states(self.model, batch, mixer.mix(batch), self.config.recompute)
            found.append(self.head(hidden.float()).squeeze(-1).index_select(0, batch.prediction_N))
            order += batch.examples
        place = to_device(np.argsort(order), self.device)
        return torch.cat(found).index_select(0, place)

    @torch.no_grad()
    def scores(self, conversations: Sequence[Conversation]) -> list[float]:
        """The score of each conversation: the probability that it is right, or a number with mean 0 and deviation 1
        over the anchors. While one thread waits for its scores, another one may start its own on the device."""
        found: list[Tensor] = []
        with self.latch.reading():
            with self._computing:
                for part in _chunks(conversations, 256):
                    raw = self._scores(part)
                    verifier = self.kind == "verifier"
                    found.append(
                        torch.sigmoid(raw / self.temperature) if verifier else (raw - self.centre) / self.scale
                    )
            return [score for part in found for score in part.tolist()]

    @torch.no_grad()
    def probabilities(self, rows: Sequence[Better]) -> list[float]:
        """The probability that the first of each pair is better or, for a single answer, that it is right."""
        if self.kind == "verifier":
            return self.scores([r.better for r in rows])
        raw = self.raw([c for r in rows for c in (r.better, _other(r))])
        gaps = [(a - b) / self.temperature for a, b in zip(raw[::2], raw[1::2], strict=True)]
        return [float(torch.sigmoid(torch.tensor(gap))) for gap in gaps]

    @torch.no_grad()
    def raw(self, conversations: Sequence[Conversation]) -> list[float]:
        """The head's own output."""
        with self.latch.reading():
            return [x for part in _chunks(conversations, 256) for x in self._scores(part).tolist()]

    # -- learning -------------------------------------------------------------------------------------------------

    def fit(self, rows: Sequence[Better], how: Fitting) -> float:
        """Train on the rows; return the mean loss of the last epoch."""
        if self.optimizer is None:
            self.optimizer = make_optimizer(self.masters.own, self.config, how.lr)
        for group in self.optimizer.param_groups:
            group["lr"] = how.lr
        total = 0.0
        for epoch in range(how.epochs):
            order = list(range(len(rows)))
            random.Random(seed_of("fit", how.seed, self.version, epoch)).shuffle(order)
            total = 0.0
            for start in range(0, len(order), how.batch):
                part = [rows[i] for i in order[start : start + how.batch]]
                total += self._step(part) * len(part) / len(rows)
        self._centre(rows)
        self.version += 1
        self.temperature = 1.0  # the temperature of another version does not apply to this one
        return total

    def _step(self, rows: Sequence[Better]) -> float:
        losses: list[Tensor] = []
        for part in self._parts(rows):
            labels = to_device(np.array([r.label for r in part], np.float32), self.device)
            if self.kind == "verifier":
                logits = self._scores([r.better for r in part])
            else:
                pairs = self._scores([c for r in part for c in (r.better, _other(r))])
                logits = pairs[::2] - pairs[1::2]
            loss = nn.functional.binary_cross_entropy_with_logits(logits, labels, reduction="sum") / len(rows)
            loss.backward()
            self._mixer.collect()
            self.masters.collect()
            losses.append(loss.detach())
        lost = float(torch.stack(losses).sum())  # only here the host waits for the device
        assert self.optimizer is not None
        with self.latch.writing():
            clipped_step(self.optimizer, self.config.grad_clip, lost, "a reward model", "lower its lr")
            self.masters.publish()
        return lost

    def _parts(self, rows: Sequence[Better]) -> Iterator[Sequence[Better]]:
        """Consecutive rows whose conversations together have at most `train.micro_batch_tokens` tokens, so that the
        activations of one backward pass fit. A row that is longer is a part of its own."""
        lengths = [sum(map(len, self.read([c for c in (r.better, r.worse) if c is not None]))) for r in rows]
        start = tokens = 0
        for end, length in enumerate(lengths):
            if tokens and tokens + length > self.config.micro_batch_tokens:
                yield rows[start:end]
                start, tokens = end, 0
            tokens += length
        yield rows[start:]

    def _centre(self, rows: Sequence[Better]) -> None:
        """Compute mean and deviation from at most 512 conversations of the first training."""
        self.anchors = self.anchors or [c for r in rows[:256] for c in (r.better, r.worse) if c is not None]
        raw = torch.tensor(self.raw(self.anchors))
        self.centre = float(raw.mean())
        self.scale = max(float(raw.std()), 1e-6) if len(self.anchors) > 1 else 1.0

    # -- keeping --------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """A copy in the host's memory: a run keeps the last good version, which is four times as large as the model."""
        return {
            "module": _on_host(self.module.state_dict()),
            "masters": _on_host(self.masters.state()),
            "optimizer": None if self.optimizer is None else _on_host(self.optimizer.state_dict()),
            "notes": [self.centre, self.scale, self.version, self.temperature],
            "anchors": [[[[m.role, m.content] for m in question], reply] for question, reply in self.anchors],
        }

    def load_weights(self, state: Mapping[str, Any]) -> None:
        """Load what scores depend on. The weights may come from a run with another precision, such as one on a GPU."""
        with self.latch.writing():
            self.module.load_state_dict(state["module"])
            self.masters.reread()
        self.centre, self.scale, self.version, *rest = state["notes"]
        self.temperature = rest[0] if rest else 1.0
        self.anchors = [(tuple(Message(*m) for m in question), reply) for question, reply in state["anchors"]]

    def load_state_dict(self, state: Mapping[str, Any], lr: float) -> None:
        """Load everything, to go on with the training."""
        self.load_weights(state)
        self.masters.load(state["masters"])
        self.optimizer = None
        if state["optimizer"] is not None:
            self.optimizer = make_optimizer(self.masters.own, self.config, lr)
            load_moments(self.optimizer, _on_host(state["optimizer"]))  # a copy, because steps change moments in place

    def save(self, folder: Path) -> None:
        """Write a folder that `AutoModelForSequenceClassification` can load. Its logits are the head's output."""
        config = copy.deepcopy(self.model.config)
        config.num_labels, config._attn_implementation = 1, "sdpa"
        whole = AutoModelForSequenceClassification.from_config(config, dtype=self.model.dtype)
        trunk = {k: v.detach().clone() for k, v in self.model.base_model.state_dict().items()}
        for adapter in self.adapters.values():
            prefix = self.model.base_model_prefix + "."
            known = layers(self.model)
            for name, (down, up) in adapter.weights.items():
                change = (up.float() @ down.float()) * adapter.scale
                key = name.removeprefix(prefix) + ".weight"
                wide = change if known[name].weight.shape == change.shape else change.T
                trunk[key] = (trunk[key].float() + wide).to(trunk[key].dtype)
        whole.base_model.load_state_dict(trunk)
        whole.score.weight.data.copy_(self.head.weight.detach())
        whole.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        notes = {"kind": self.kind, "centre": self.centre, "scale": self.scale, "version": self.version}
        notes["temperature"] = self.temperature
        (folder / NOTES).write_text(json.dumps(notes) + "\n")


def _on_host(state: Any) -> Any:
    """A copy of nested dicts and lists whose tensors are in the host's memory."""
    if isinstance(state, Tensor):
        return state.detach().to("cpu", copy=True)
    if isinstance(state, Mapping):
        return {key: _on_host(value) for key, value in state.items()}
    return [_on_host(value) for value in state] if isinstance(state, list) else state


def _other(row: Better) -> Conversation:
    assert row.worse is not None
    return row.worse


def _chunks(rows: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def new_reward_model(
    kind: ModelKind, base: str, config: TrainSection, where: tuple[str, torch.dtype], seed: int,
    adapter: AdapterSection | None = None,
) -> RewardModel:  # fmt: skip
    """A reward model on a base's weights, before any training."""
    loaded = load(base, *where, seed)
    made = None if adapter is None else fresh_adapter(loaded, adapter, seed_of("reward model", seed))
    return RewardModel(kind, loaded, config, made)


def load_reward_model(
    folder: Path, config: TrainSection, device: str, dtype: torch.dtype, kind: ModelKind | None = None
) -> RewardModel:
    """Load what `save` wrote, or any Hugging Face model for sequence classification that has one label and a linear
    head. `kind` is the kind that the caller expects, if any: other libraries do not store it."""
    try:
        shape = AutoConfig.from_pretrained(folder)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        whole = AutoModelForSequenceClassification.from_pretrained(folder, dtype=dtype)
    except (OSError, ValueError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelError(
            f"reward model '{folder}' cannot be loaded ({reason}); expected the folder of a Hugging Face model for "
            "sequence classification, such as interplay judge train writes."
        ) from None
    head = getattr(whole, "score", None)
    if whole.config.num_labels != 1 or not isinstance(head, nn.Linear) or head.bias is not None:
        raise ModelError(
            f"reward model '{folder}' has {whole.config.num_labels} labels; expected one label and a head without a "
            "bias."
        )
    model = AutoModelForCausalLM.from_config(shape, dtype=dtype, attn_implementation=ATTENTION)
    model.base_model.load_state_dict(whole.base_model.state_dict())
    if tokenizer.chat_template is None:
        tokenizer.chat_template = FALLBACK_TEMPLATE
    notes = json.loads((folder / NOTES).read_text()) if (folder / NOTES).is_file() else {}
    found: ModelKind = notes.get("kind", kind or "reward_model")
    if kind not in (None, found):
        raise ModelError(f"'{folder}' is a {found}, but is used as a {kind}; expected kind = '{found}'.")
    loaded = Loaded(model.to(device).eval(), tokenizer, (tokenizer.eos_token_id,))
    out = RewardModel(found, loaded, config)
    out.head.weight.data.copy_(head.weight)
    out.masters.reread()
    out.centre, out.scale = notes.get("centre", 0.0), notes.get("scale", 1.0)
    out.version, out.temperature = notes.get("version", 0), notes.get("temperature", 1.0)
    return out


def digest(model: RewardModel) -> str:
    """A digest of the model's weights, which a server sends with every answer."""
    found = hashlib.blake2b(digest_size=8)
    for name, tensor in sorted(model.module.state_dict().items()):
        found.update(name.encode())
        found.update(tensor.detach().float().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()
