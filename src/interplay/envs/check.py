"""The conformance suite for environment authors: `check(name, options)` returns one `Finding` for each rule.

The rules are: an episode depends only on (task, actions); a fork shares nothing; hidden information never reaches an
observation; every episode ends; illegal actions have a defined consequence; nothing is earned by echoing the prompt;
tools change nothing. All this is tested from outside, by playing. Whatever the environment raises becomes a failed
finding. Two things cannot be found: a secret that `redeal` does not draw again, and an order that depends on Python's
string hashes, which do not change within one process.
"""

from __future__ import annotations

import itertools
import math
import random
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from interplay.config import validate
from interplay.envs.env import Env, lookup, make, outcome_of, sample_task, seen_now
from interplay.envs.splits import SPLITS
from interplay.errors import ConfigError
from interplay.types import Level, Observation, Rewards, Role, Task, seed_of

LIMIT = 10_000  # decisions after which an episode counts as endless
SHORT = 200  # the limit for the other rules, so that an endless environment fails only one rule, and soon
TRIES = 20  # listed actions that are tried at one decision
TASKS = 400  # tasks that are compared between splits

# Replies that mean nothing in any game, and some that a parser may have trouble with, and may accept.
_NONSENSE = ("", "x" * 20_000, "☃ 🂡 \u202eñ\x00", "999999999")
_NOISE = (*_NONSENSE, " \n\t", "-1", "0.5", '{"action": null}', "<|im_end|>")


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one rule. `detail` says what was tested, or the first thing that was wrong."""

    rule: str
    passed: bool
    detail: str


class _Broken(Exception):
    """A rule does not hold. The text says where."""


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise _Broken(otherwise)


# A player gets what every acting role sees and returns an action for each. None stops the play.
PlayRule = Callable[[Mapping[Role, Observation]], dict[Role, str] | None]


@dataclass(slots=True)
class _Play:
    """What happened at each decision. The trace is text, so that it cannot change later; it is written only for rules
    that compare plays, because it takes longer than most games."""

    seen: list[dict[Role, Observation]] = field(default_factory=list)
    actions: list[dict[Role, str]] = field(default_factory=list)
    rewards: list[Rewards] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)

    def total(self, role: Role) -> float:
        return sum(r.value for got in self.rewards for r in got.of(role) if r.value and math.isfinite(r.value))

    def lost_to(self, role: Role) -> bool:
        """Whether another role got a negative reward that was not for an illegal reply."""
        got = [r for rewards in self.rewards for r in rewards if r.role not in (None, role) and r.name != "illegal"]
        return any(r.value is not None and r.value < 0 for r in got)


def _advance(env: Env, player: PlayRule, limit: int = SHORT, traced: bool = False) -> _Play:
    play = _Play()
    while len(play.actions) < limit and (seen := dict(seen_now(env))):
        state = env.state()
        before = f"observations {seen!r}, state {state!r}" if traced else ""
        if (actions := player(seen)) is None:
            break
        rewards = env.step(dict(actions))
        play.seen.append(seen)
        play.actions.append(actions)
        play.rewards.append(rewards)
        if traced:
            play.trace.append(f"{before}, rewards {rewards!r}")
    return play


def _finish(env: Env, player: PlayRule, traced: bool = False) -> _Play:
    """Play to the end (or the short limit) and ask for the outcome, which ends the trace."""
    play = _advance(env, player, traced=traced)
    play.rewards.append(outcome_of(env))
    after, state = seen_now(env), env.state()
    if traced:
        play.trace.append(f"observations {after!r}, state {state!r}, outcome {play.rewards[-1]!r}")
    return play


def _text(observation: Observation) -> str:
    return "\n".join(m.content for m in observation.messages)


def _random(rng: random.Random) -> PlayRule:
    """Play uniformly over the legal actions. If they are not listed, give any reply."""
    return lambda seen: {role: rng.choice(o.legal or (*_NOISE, _text(o))) for role, o in seen.items()}


def _garbage(rng: random.Random) -> PlayRule:
    """Give only bad replies, or bad replies in half of the decisions, to reach later states of the game too."""
    heard: dict[Role, tuple[str, ...]] = {}
    share = rng.choice((0.5, 1.0))

    def reply(seen: Mapping[Role, Observation]) -> dict[Role, str]:
        heard.update({role: o.legal for role, o in seen.items()})
        actions = _random(rng)(seen) or {}
        for role, o in seen.items():
            others = [a for other, legal in heard.items() if other != role for a in legal]
            if rng.random() < share:
                actions[role] = rng.choice([*_NOISE, _text(o), *rng.sample(others, min(1, len(others)))])
        return actions

    return reply


def _scripted(script: list[dict[Role, str]]) -> PlayRule:
    """Give the given actions. Stop if the environment asks other roles than before; the trace then shows this."""
    lines = iter(script)
    return lambda seen: said if (said := next(lines, {})).keys() == seen.keys() else None


def _saying(role: Role, reply: str | None, rng: random.Random) -> PlayRule:
    """One role always says the same or, with None, repeats its whole prompt. The others play at random."""
    prompt: list[str] = []

    def say(seen: Mapping[Role, Observation]) -> dict[Role, str]:
        actions = _random(rng)(seen) or {}
        if role in seen:
            prompt[:] = [*([] if seen[role].fresh else prompt), _text(seen[role])]
            actions[role] = "\n".join(prompt) if reply is None else reply
        return actions

    return say


def _same(first: list[str], second: list[str], what: str) -> None:
    for i, (a, b) in enumerate(zip(first, second, strict=False)):
        if a != b:
            at = next(k for k in range(max(len(a), len(b))) if a[k : k + 1] != b[k : k + 1])
            near = slice(max(0, at - 40), at + 40)
            raise _Broken(f"{what}: decision {i + 1} differs, '…{a[near]}…' against '…{b[near]}…'")
    _require(len(first) == len(second), f"{what}: {len(first)} decisions against {len(second)}")


# The rules, for one task. Each returns the number of things it tested, or raises _Broken.


def _determinism(task: Task, rng: random.Random) -> int:
    first = _finish(make(task), _random(rng), traced=True)
    env, script = make(task), _scripted(first.actions)

    def looking_twice(seen: Mapping[Role, Observation]) -> dict[Role, str] | None:
        _same([repr(dict(seen))], [repr(dict(seen_now(env)))], "observe() called twice")
        return script(seen)

    _same(first.trace, _finish(env, looking_twice, traced=True).trace, "played twice with the same actions")
    return len(first.actions)


def _fork_independence(task: Task, rng: random.Random) -> int:
    env, length = make(task), len(_advance(make(task), _random(rng)).actions)
    _advance(env, _random(rng), limit=rng.randrange(max(1, length)))
    # The first fork shows how the game goes on. Other forks are played differently. Then all must go on like the first.
    late, first = env.fork(), _finish(env.fork(), _random(rng), traced=True)
    for stray in (env.fork(), env.fork(rng.getrandbits(62))):
        _finish(stray, _random(rng))
    for one, what in ((env, "the original after its forks"), (late, "a fork after its original")):
        again = _finish(one, _scripted(first.actions), traced=True)
        _same(first.trace, again.trace, f"{what} played (from the fork on)")
    return 4


def _ends(task: Task, player: PlayRule) -> int:
    env = make(task)
    decisions = len(_advance(env, player, LIMIT).actions)
    _require(not seen_now(env), f"not over after {decisions} decisions")
    return decisions


def _hidden_information(task: Task, rng: random.Random) -> int:
    env, play = make(task), _random(rng)

    def comparing(seen: Mapping[Role, Observation]) -> dict[Role, str] | None:
        for role, observation in seen.items():
            for other, how in ((env.redeal(role, rng), "redeal"), (env.fork(rng.getrandbits(62)), "fork with a seed")):
                _same([repr(observation)], [repr(seen_now(other).get(role))], f"a {how} changes what {role} sees")
        return play(seen)

    return sum(len(seen) for seen in _advance(env, comparing).seen)


def _declared_roles(task: Task, rng: random.Random) -> int:
    env = make(task)
    _require(0 < len(set(env.roles)) == len(env.roles), f"roles is {env.roles!r}; expected distinct names")
    play = _advance(env, _random(rng))
    _require(bool(play.seen), "the episode is over before anybody acted")
    extra = {role for seen in play.seen for role in seen} - set(env.roles)
    _require(not extra, f"observe() names {sorted(extra)}; declared roles: {', '.join(env.roles)}")
    return len(play.seen)


def _reward_names(task: Task, rng: random.Random) -> int:
    env = make(task)
    plays = (_finish(env, _random(rng)), _finish(make(task), _garbage(rng)))
    records = [r for play in plays for rewards in play.rewards for r in rewards]
    for r in records:
        _require(r.name in env.reward_names, f"{r}: expected one of reward_names {env.reward_names}")
        _require(isinstance(r.level, Level), f"{r}: expected a Level")
        _require((r.role is None) == (r.level is Level.TEAM), f"{r}: expected a role, or no role and level team")
        _require(r.role is None or r.role in env.roles, f"{r}: expected one of the roles {env.roles}")
        _require(r.value is None or math.isfinite(r.value), f"{r}: expected a finite value, or None")
    return len(records)


def _legal_lists(task: Task, rng: random.Random) -> int:
    tried, play = 0, _advance(make(task), _random(rng))
    cut = rng.randrange(max(1, len(play.actions)))
    for role, o in play.seen[cut].items() if play.seen else ():
        bad = [text for text in _NONSENSE if text not in o.legal] if o.legal else []
        for text in [*rng.sample(o.legal, min(TRIES, len(o.legal))), *bad]:
            env = make(task)  # replayed and not forked, because a broken fork is the finding of another rule
            _advance(env, _scripted(play.actions[:cut]))
            rewards = env.step({**play.actions[cut], role: text})
            refused = any((r.name, r.level, r.role) == ("illegal", Level.PROCESS, role) for r in rewards)
            where = f"decision {cut + 1}, {role} replies {text[:40]!r}"
            _require(refused or text in o.legal, f"{where}: not a legal action, yet no process reward 'illegal'")
            _require(not refused or text not in o.legal, f"{where}: a listed action, yet answered with 'illegal'")
            tried += 1
    return tried


def _echo(task: Task, rng: random.Random) -> int:
    seen = [o for seen in _finish(make(task), _random(rng)).seen for o in seen.items()]
    roles, listed = {role for role, _ in seen}, any(o.legal for _, o in seen)
    for role in sorted(roles):
        # The others use the same random numbers each time, so that the echo does not get credit for a partner's luck.
        seed = rng.getrandbits(62)
        echo, *noise = (_finish(make(task), _saying(role, r, random.Random(seed))) for r in (None, *_NONSENSE))
        earned, usual = echo.total(role), max(play.total(role) for play in noise)
        # If no actions are listed, the random play of others is noise: if they lose by it, the echo did not beat them.
        fine = earned <= usual + 1e-9 or (not listed and echo.lost_to(role))
        _require(earned <= 0 or fine, f"{role} earned {earned:g} by echoing")
    return len(roles)


def _over_is_over(task: Task, rng: random.Random) -> int:
    env = make(task)
    _advance(env, rng.choice((_random, _garbage))(rng))
    if seen_now(env):  # an endless episode is the finding of another rule
        return 0
    first, again = (repr((outcome_of(env), env.state())) for _ in range(2))
    _require(first == again, f"outcome() and state() asked for twice: {first} and {again}")
    _require(not seen_now(env), f"observe() names {sorted(seen_now(env))} after the end")
    return 1


def _splits(draw: Callable[[str, int], Task]) -> int:
    seeds = {split: {draw(split, i).seed for i in range(TASKS)} for split in SPLITS}
    for a, b in itertools.combinations(SPLITS, 2):
        _require(not seeds[a] & seeds[b], f"{a} and {b} share {len(seeds[a] & seeds[b])} of {TASKS} task seeds")
    return TASKS * len(SPLITS)


def _tools(task: Task, rng: random.Random) -> int:
    env, play = make(task), _random(rng)

    def calling(seen: Mapping[Role, Observation]) -> dict[Role, str] | None:
        for role, o in seen.items():
            names = [t.name for t in o.tools]
            _require(len(set(names)) == len(names), f"{role} has two tools of one name: {names}")
            for tool in o.tools:
                for text in rng.sample((*_NOISE, _text(o)), 3):
                    given = {p.name: {"string": text, "boolean": False}.get(p.type, 0) for p in tool.parameters}
                    before = f"{seen!r}, {env.state()}"
                    answers = [tool.run(**given) for _ in range(2)]
                    _require(isinstance(answers[0], str), f"{tool.name} gave {answers[0]!r}; expected text")
                    _same(answers[:1], answers[1:], f"{tool.name} called twice with {text[:40]!r}")
                    _same([before], [f"{dict(seen_now(env))!r}, {env.state()}"], f"{tool.name} changed something")
        return play(seen)

    return len(_advance(env, calling, 10).actions)


_RULES: dict[str, tuple[Callable[[Task, random.Random], int], str]] = {
    "determinism": (_determinism, "decisions"),
    "fork independence": (_fork_independence, "forks"),
    "termination, legal play": (lambda task, rng: _ends(task, _random(rng)), "decisions"),
    "termination, garbage play": (lambda task, rng: sum(_ends(task, _garbage(rng)) for _ in range(5)), "decisions"),
    "hidden information": (_hidden_information, "observations"),
    "declared roles": (_declared_roles, "decisions"),
    "reward names": (_reward_names, "rewards"),
    "legal lists": (_legal_lists, "replies"),
    "echo": (_echo, "echoing players"),
    "over is over": (_over_is_over, "endings"),
    "tools": (_tools, "decisions"),
}
RULES = (*_RULES, "splits")


def check(name: str, options: Mapping[str, Any], episodes: int = 20, seed: int = 0) -> list[Finding]:
    """Play environment `name` as the rules require. Returns one finding for each of `RULES`, in that order."""
    # An unknown name and wrong options are mistakes of the caller and not findings: these raise ConfigError.
    validate(lookup(name).Options, options, prefix="env")
    draw = partial(sample_task, name, options, seed=seed)

    def look(rule: str, index: int) -> int:
        return _RULES[rule][0](draw("train", index), random.Random(seed_of("check", rule, seed, index)))

    played = [_finding(r, unit, [partial(look, r, i) for i in range(episodes)]) for r, (_, unit) in _RULES.items()]
    return [*played, _finding("splits", "tasks", [lambda: _splits(draw)])]


def _finding(rule: str, unit: str, looks: Sequence[Callable[[], int]]) -> Finding:
    count = 0
    for i, look in enumerate(looks):
        try:
            count += look()
        except _Broken as broken:
            return Finding(rule, False, f"task {i}: {broken}" if len(looks) > 1 else str(broken))
        except ConfigError:  # options that only the environment itself can check
            raise
        except Exception as error:  # whatever the environment raises is a finding
            at = traceback.extract_tb(error.__traceback__)[-1]
            return Finding(rule, False, f"task {i}: {type(error).__name__}: {error} ({at.filename}:{at.lineno})")
    return Finding(rule, True, f"{count} {unit}")
