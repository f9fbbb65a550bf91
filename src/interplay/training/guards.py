"""Watch every training step of every policy, and warn when something goes wrong.

The learner itself stops a step at the gate between engine and learner (promise 2) and at non-finite losses, before the
weights change. The guards here look for slower problems: gradient spikes, entropy collapse, advantages that are all
zero. Each warns when its problem begins. With `train.stop_on_guard` the run stops instead; its newest checkpoint is
complete.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from interplay.config import TrainSection
from interplay.errors import GuardError

log = logging.getLogger("interplay")
_MEMORY = 0.9  # decay of the running mean of gradient norms
_YOUNG = 5  # steps before the running mean is used
_LASTING = ""  # a key in the saved state that is no policy's name
_WORSE = 1.5  # warn again of a gap when it is this many times the one that was last warned of
_COVERAGE = 0.5  # warn of a judge if it gives a verdict on a smaller share of its questions
_MUTE = 5  # warn after this many steps in a row in which all advantages of a role are zero


class Guards:
    def __init__(self, config: TrainSection) -> None:
        self.config = config
        self._norms: dict[str, tuple[int, float]] = {}  # per policy: steps seen, running mean
        self._lasting: dict[str, int] = {}  # by problem: for how many steps in a row
        self._told: dict[str, float] = {}  # per policy: the gap above which the gate warns again

    def gate(self, name: str, metrics: Mapping[str, float], rounded: bool) -> None:
        """Promise 2: at every step, check that the learner's log-probs before the step are those of the engine.

        Past `gap_stop` the learner itself refuses the step; this warns earlier."""
        key, limit = ("gap_mean", self.config.gap_mean_warn) if rounded else ("gap", self.config.gap_warn)
        gap, ratio = metrics.get(key, 0.0), metrics.get("ratio_mean" if rounded else "ratio", 1.0)
        if gap > self._told.get(name, limit):
            self._told[name] = _WORSE * gap
            log.warning("policy '%s': engine and learner disagree by %.2e in log-prob (train.%s_warn)", name, gap, key)
        if math.log(ratio) > limit:
            sentence = "policy '%s': the ratio at the first minibatch is %.4f, expected 1 (train.%s_warn)"
            log.warning(sentence, name, ratio, key)

    def watch(self, step: int, policies: Sequence[str], metrics: Mapping[str, float], trained: Collection[str]) -> None:
        """Warn of problems in a step; with `train.stop_on_guard`, end the run. Only the roles in `trained`, which were
        played by trained policies, need advantages that are not zero."""
        zero = {role: share for role, share in _below("credit/zero_share/", metrics).items() if role in trained}
        found = self._judges(metrics)
        if self._lasts("nobody asked", not trained) == 1:
            found.append(
                "no trained policy was asked for a reply in this step, so nothing was learned; check the seats, and "
                "that an outside program asks the server in OPENAI_BASE_URL"
            )
        for i, name in enumerate(policies):
            found += self.look(name, _below(f"{name}/", metrics), {} if i else zero)  # report the credit of roles once
        if found and self.config.stop_on_guard:
            raise GuardError(
                f"step {step}: {'; '.join(found)}; train.stop_on_guard is set, so the run stops. Resume it with other "
                "settings, or with train.stop_on_guard = false."
            )
        for sentence in found:
            log.warning("step %d: %s", step, sentence)

    def look(self, name: str, metrics: Mapping[str, float], zero_shares: Mapping[str, float]) -> list[str]:
        """The problems in this step of policy `name`, one sentence each. `zero_shares` are by role."""
        found = []
        norm = metrics.get("grad_norm")
        if norm is not None:
            seen, mean = self._norms.get(name, (0, 0.0))
            limit = self.config.guard_grad_spike
            if seen >= _YOUNG and norm > limit * mean:
                found.append(
                    f"policy '{name}': the gradient norm is {norm:.3g}, more than {limit:g} times its mean of "
                    f"{mean:.3g} (train.guard_grad_spike)"
                )
            self._norms[name] = (seen + 1, norm if seen == 0 else _MEMORY * mean + (1 - _MEMORY) * norm)
        entropy = metrics.get("entropy")
        if entropy is not None and self._lasts(f"entropy {name}", entropy < self.config.guard_entropy) == 1:
            found.append(
                f"policy '{name}': the entropy is {entropy:.3g} nats per token, below train.guard_entropy "
                f"({self.config.guard_entropy:g}): its replies are nearly the same for every prompt"
            )
        for role, share in zero_shares.items():
            if self._lasts(f"zeros {role}", share > self.config.guard_zero_share) == 1:
                found.append(
                    f"role {role}: {share:.0%} of its advantages are exactly zero, more than train.guard_zero_share "
                    f"({self.config.guard_zero_share:.0%}): there is little to learn from"
                )
            if self._lasts(f"mute {role}", share == 1.0) == _MUTE:
                found.append(
                    f"role {role}: all of its advantages have been exactly zero for {_MUTE} steps, so it learns "
                    "nothing, because all replies or episodes that are compared earn the same; check its rewards, or "
                    "sample more of each task"
                )
        return found

    def _judges(self, metrics: Mapping[str, float]) -> list[str]:
        """The judges that give no verdict on most questions."""
        found = []
        for key, share in _below("judge/", metrics).items():
            name, _, kind = key.rpartition("/")
            if kind == "coverage" and self._lasts(f"silent {name}", share < _COVERAGE) == 1:
                flips = metrics.get(f"judge/{name}/flips", 0.0)
                why = f"on {flips:.0%} it preferred the same place in both orders, and its other" if flips else "its"
                found.append(
                    f"judge '{name}' gave a verdict on only {share:.0%} of its questions, so most replies get no "
                    f"reward from it: {why} answers could not be parsed or disagreed; give it clearer instructions, a "
                    f"larger judges.{name}.max_tokens or a larger model, or set judges.{name}.marks = 'expected' if it "
                    "is a local policy that gives marks"
                )
        return found

    def _lasts(self, what: str, wrong: bool) -> int:
        """For how many steps something has been wrong, this one included."""
        self._lasting[what] = self._lasting.get(what, 0) + 1 if wrong else 0
        return self._lasting[what]

    def state_dict(self) -> dict[str, Any]:
        return {**{name: list(pair) for name, pair in self._norms.items()}, _LASTING: dict(self._lasting)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._lasting = dict(state.get(_LASTING, {}))
        self._norms = {name: (int(pair[0]), float(pair[1])) for name, pair in state.items() if name != _LASTING}


def _below(prefix: str, metrics: Mapping[str, float]) -> dict[str, float]:
    return {k.removeprefix(prefix): v for k, v in metrics.items() if k.startswith(prefix)}
