"""What the algorithm needs before credit: critic values, log-probs of the reference or of all legal replies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from interplay.algorithms import Algorithm
from interplay.rollout.team import Team
from interplay.training.critic import Critic, view_of
from interplay.training.forward import logprobs
from interplay.training.learner import Learner
from interplay.types import Turn


@dataclass(frozen=True)
class Scorer:
    algorithm: Algorithm
    team: Team
    learners: Mapping[str, Learner]
    critics: Mapping[str, Critic]
    references: Mapping[str, str]  # of each policy: the snapshot it is held to now

    def score(self, batches: Mapping[str, Sequence[Turn]]) -> None:
        """Fill in what is needed, on the turns of each policy."""
        for name, turns in batches.items():
            if self.algorithm.reference:
                self._reference(name, turns)
            if "legal" in self.algorithm.needs:
                self._legal(name, turns)
            if "values" in self.algorithm.needs:
                self._values(name, turns)

    def _reference(self, name: str, turns: Sequence[Turn]) -> None:
        then = self.team.members[self.references[name]]
        limit = self.learners[name].config.micro_batch_tokens
        adapters = {} if then.adapter is None else {name: then.adapter}
        for turn, found in zip(turns, logprobs(then.loaded.model, turns, limit, adapters), strict=True):
            turn.ref_logprobs = tuple(found)

    def _legal(self, name: str, turns: Sequence[Turn]) -> None:
        masked = [t for t in turns if t.masked]
        replies = [replace(t, id=f"{t.id}~{k}", action=a) for t in masked for k, a in enumerate(t.masked)]
        every = iter(self.learners[name].logprobs(replies))
        for turn in masked:
            turn.legal_logprobs = tuple(tuple(next(every)) for _ in turn.masked)

    def _values(self, name: str, turns: Sequence[Turn]) -> None:
        seen = self.seen_by_critic(name, turns)
        if "tokens" in self.algorithm.needs:
            for turn, values in zip(turns, self.critics[name].token_values(seen), strict=True):
                turn.token_values, turn.value = values, values[0]
            return
        for turn, value in zip(turns, self.critics[name].values(seen), strict=True):
            turn.value = value

    def seen_by_critic(self, name: str, turns: Sequence[Turn]) -> Sequence[Turn]:
        """The turns with what their critic reads as the prompt: what the policy was asked, or the whole state."""
        if "central" not in self.algorithm.needs:
            if "tokens" in self.algorithm.needs:
                return turns
            return [replace(t, prompt=t.asked, merged=False) if t.calls else t for t in turns]
        renderer = self.team.members[name].renderer
        return [replace(t, prompt=view_of(renderer, t.role, t.state), merged=False) for t in turns]
