"""Compute what the algorithm needs for credit: critic values, log-probs of the reference or of all legal replies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from interplay.algorithms import Algorithm
from interplay.rollout.team import Team
from interplay.training.critic import view_of
from interplay.training.forward import logprobs
from interplay.training.learner import Learner
from interplay.training.tries import Example
from interplay.types import Credit, Sample, Snapshot, Turn


@dataclass(frozen=True)
class Scorer:
    algorithm: Algorithm
    team: Team
    learners: Mapping[str, Learner]
    references: Mapping[str, Snapshot]  # for each policy: its current reference

    def score(self, turns: Mapping[str, Sequence[Turn]], due: Sequence[Turn], credit: Credit) -> None:
        """Fill in what the algorithm needs for the turns of each policy. If it needs values, also compute those of
        turns that were `due` when an episode was cut off."""
        for name, mine in turns.items():
            if self.algorithm.reference:
                self._reference(name, mine, credit)
            if "legal" in self.algorithm.needs:
                self._legal(name, mine, credit)
            if "values" in self.algorithm.needs:
                self._values(name, mine, "tokens" in self.algorithm.needs, credit)
                self._values(name, [t for t in due if t.policy == name], False, credit)

    def _reference(self, name: str, turns: Sequence[Turn], credit: Credit) -> None:
        then = self.team.members[str(self.references[name])]
        limit = self.learners[name].config.micro_batch_tokens
        adapters = {} if then.adapter is None else {name: then.adapter}
        samples = [s for t in turns for s in t.samples]
        found = logprobs(then.loaded.model, [Example(name, s) for s in samples], limit, adapters)
        credit.reference |= {s.id: tuple(lp) for s, lp in zip(samples, found, strict=True)}

    def _legal(self, name: str, turns: Sequence[Turn], credit: Credit) -> None:
        masked = [s for t in turns for s in t.samples if s.mask]
        replies = [replace(s, id=f"{s.id}~{k}", action=a) for s in masked for k, a in enumerate(s.mask)]
        every = iter(self.learners[name].logprobs([Example(name, s) for s in replies]))
        credit.legal |= {s.id: tuple(tuple(next(every)) for _ in s.mask) for s in masked}

    def _values(self, name: str, turns: Sequence[Turn], tokens: bool, credit: Credit) -> None:
        seen = [Example(name, s) for t in turns for s in self.seen_by_critic(name, t)]
        found = self.learners[name].values(seen, tokens)
        credit.values |= {e.sample.id: values for e, values in zip(seen, found, strict=True)}

    def seen_by_critic(self, name: str, turn: Turn) -> list[Sample]:
        """The samples of a turn, with the prompt that the critic reads: the policy's own prompt, or the whole state."""
        if "central" in self.algorithm.needs:
            view = view_of(self.team.members[name].renderer, turn.role, turn.state)
            return [replace(s, prompt=view, media=(), extends=None) for s in turn.samples]
        if "tokens" in self.algorithm.needs or len(turn.samples) == 1:
            return list(turn.samples)
        first = turn.samples[0]
        return [*turn.samples[:-1], replace(turn.last, prompt=first.prompt, media=first.media, extends=None)]
