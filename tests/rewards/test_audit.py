"""The audit of judges names what was planted, and nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from interplay.errors import ConfigError
from interplay.rewards.audit import Judge, Watch, audit, in_both_orders
from interplay.rewards.preference import Pair, Verdict
from interplay.types import Message


def pairs(count: int = 60) -> list[Pair]:
    rng = random.Random(0)
    word = lambda: "".join(rng.choices("abcdefgh", k=rng.randint(3, 9)))  # noqa: E731
    reply = lambda: " ".join(word() for _ in range(rng.randint(3, 12)))  # noqa: E731
    return [Pair(f"p{i}", (Message("user", f"Say {word()}."),), reply(), reply()) for i in range(count)]


def by(score: Callable[[Pair, str], float], place: float = 0.0) -> Judge:
    def judge(asked: Sequence[Pair]) -> list[Verdict]:
        gaps = [score(p, p.first) - score(p, p.second) + place for p in asked]
        return [Verdict(0.5 if gap == 0 else float(gap > 0)) for gap in gaps]

    return judge


def letters(p: Pair, reply: str) -> float:
    """A score that padding, echo and decoration do not raise: the letters of the reply's own first word."""
    return float(len([w for w in reply.split() if w in f"{p.first} {p.second}".split()][:1]))


PLANTED: dict[str, Judge] = {
    "length": by(lambda p, reply: len(reply)),
    "position": by(lambda p, reply: 0.0, place=1.0),
    "echo": by(lambda p, reply: float(p.question[-1].content in reply)),
    "style": by(lambda p, reply: reply.count("**")),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_bias_is_named(planted: str) -> None:
    faults = {f.check for f in audit(PLANTED[planted], pairs()) if f.fault}
    assert planted in faults
    if planted != "length":  # whoever counts characters also likes an echo and decoration, which are longer
        assert faults == {planted}


def test_a_judge_without_bias_is_not_accused() -> None:
    worth = {p.first: float(i % 7) for i, p in enumerate(pairs())} | {p.second: 3.0 for p in pairs()}
    fair = by(lambda p, reply: max((v for text, v in worth.items() if text in reply), default=0.0))
    assert [f for f in audit(fair, pairs()) if f.fault] == []


def test_drift_is_seen_on_the_same_pairs() -> None:
    before = in_both_orders(PLANTED["length"], pairs())
    assert not next(iter(audit(PLANTED["length"], pairs(), ["drift"], before))).fault
    shorter = by(lambda p, reply: -len(reply))
    assert next(iter(audit(shorter, pairs(), ["drift"], before))).fault


def test_an_unknown_check_is_refused() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'length'"):
        audit(PLANTED["length"], pairs(), ["lenght"])


def test_the_watch_warns_when_gold_falls_while_the_proxy_rises() -> None:
    falling = Watch(drop=0.2, window=2)
    assert not any(falling.see(g, p) for g, p in [(1.0, 0.1), (1.2, 0.2), (1.4, 0.3), (1.35, 0.4)])
    assert any(falling.see(g, p) for g, p in [(1.1, 0.5), (1.0, 0.6)])
    both = Watch(drop=0.2, window=2)  # a policy that simply gets worse is no over-optimisation
    assert not any(both.see(g, p) for g, p in [(1.4, 0.5), (1.4, 0.5), (1.0, 0.2), (0.9, 0.1)])
    again = Watch(drop=0.2, window=2)
    again.load_state_dict(falling.state_dict())
    assert again.seen == falling.seen


def test_what_drift_is_measured_by_survives_a_checkpoint() -> None:
    import json

    from interplay.rewards.audit import Fixed

    kept, again = Fixed(pairs(3), in_both_orders(PLANTED["length"], pairs(3))), Fixed()
    again.load_state_dict(json.loads(json.dumps(kept.state_dict())))
    assert again.state_dict() == kept.state_dict() and again.pairs == kept.pairs
