"""The conformance suite passes the shipped environments, and each kind of broken one fails its own rule."""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from interplay.envs import Env, make, sample_task
from interplay.envs import env as registry
from interplay.envs.check import RULES, Finding, check
from interplay.envs.games.matrix import GAMES
from interplay.errors import ConfigError
from interplay.types import Level, Message, Observation, Parameter, Reward, Rewards, Role, Task, Tool

THREE_PLAYERS = {
    "rounds": 3,
    "actions": [["Left", "right"], ["up", "down"], ["in", "out", "stay"]],
    "payoff": [[[[a + b + c, a - b, -c] for c in range(3)] for b in range(2)] for a in range(2)],
}
ALL_POSITIVE = {"actions": [["a", "b"], ["c", "d"]], "payoff": [[[3, 4], [5, 6]], [[7, 8], [9, 10]]]}
SHIPPED: list[tuple[str, dict[str, Any]]] = [
    ("tictactoe", {}),
    ("tictactoe", {"memory": True}),
    ("tictactoe", {"size": 4}),
    ("tictactoe", {"size": 4, "line": 4, "memory": True}),
    *(("matrix", {"game": game}) for game in sorted(GAMES)),
    ("matrix", {"rounds": 4}),
    ("matrix", THREE_PLAYERS),
    ("matrix", ALL_POSITIVE),
    ("matrix", {"rounds": 3, "talk": True}),
    ("matrix", {**THREE_PLAYERS, "talk": True}),
    ("connect_four", {}),
    ("connect_four", {"columns": 4, "rows": 3, "line": 3, "brief": True}),
    ("kuhn", {}),
    ("kuhn", {"brief": True}),
    ("leduc", {}),
    ("leduc", {"brief": True}),
    ("negotiation", {"talk": False, "turns": 4}),
    ("hanabi", {}),
    ("hanabi", {"players": 5, "strikes": "keep"}),
    ("hanabi", {"players": 3, "variant": "small", "brief": True}),
]


class Cards(Env):
    """A correct little environment, to be broken by subclasses: secret cards, a coin after each move, two guesses
    each."""

    reward_names = ("guess", "tip", "illegal")
    roles = ("a", "b")
    words: tuple[str, ...] = ("high", "low")

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.hands = dict(zip(self.roles, self.rng.sample(range(6), 2), strict=True))
        self.said: list[str] = []
        self.coins = ""
        self.loser: Role | None = None

    def to_move(self) -> Role:
        return self.roles[len(self.said) % 2]

    def observe(self) -> dict[Role, Observation]:
        if self.loser or len(self.said) >= 4:
            return {}
        role = self.to_move()
        text = f"You hold {self.hands[role]}. Said: {self.said}. Coins: {self.coins}. Reply high or low."
        return {role: Observation((Message("user", text),), fresh=True, legal=self.words)}

    def read(self, text: str) -> str | None:
        return text if text in ("high", "low") else None

    def step(self, actions: dict[Role, str]) -> Rewards:
        role = self.to_move()
        word = self.read(actions[role])
        if word is None:
            self.loser = role
            return Rewards.process("illegal", {role: -1.0})
        self.said.append(word)
        self.coins += self.rng.choice("HT")
        return Rewards.process("tip", {role: 0.0})

    def outcome(self) -> Rewards:
        if self.loser:
            return Rewards.agent("guess", {r: -1.0 if r == self.loser else 1.0 for r in self.roles})
        right = [(self.hands[r] > 2) == (word == "high") for r, word in zip(self.roles, self.said, strict=False)]
        lead = float(sum(right[:1]) - sum(right[1:]))
        return Rewards.agent("guess", {"a": lead, "b": -lead})

    def state(self) -> str:
        return f"{self.hands} {self.said} {self.coins} {self.loser}"

    def redeal(self, role: Role, rng: random.Random) -> Env:
        twin = self.fork(rng.getrandbits(62))
        assert isinstance(twin, Cards)
        others = [r for r in self.roles if r != role]
        rest = [card for card in range(6) if card != self.hands.get(role)]
        twin.hands = self.hands | dict(zip(others, rng.sample(rest, len(others)), strict=True))
        return twin


class Waiting(Cards):
    """What the roles see is there only after `settle`."""

    settled = False

    async def settle(self) -> None:
        self.settled = True

    def observe(self) -> dict[Role, Observation]:
        if not self.settled:
            raise RuntimeError("observe() was called before settle()")
        return super().observe()

    def step(self, actions: dict[Role, str]) -> Rewards:
        self.settled = False
        return super().step(actions)


def test_an_environment_that_waits_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.ENVIRONMENTS.classes, "waiting", Waiting)
    monkeypatch.setitem(registry.ENVIRONMENTS.classes, "cards", Cards)
    assert check("waiting", {}) == check("cards", {}) and all(found.passed for found in check("waiting", {}))


class DealtFromElsewhere(Cards):
    """Deterministic after it was made, but it does not depend on its task."""

    made = itertools.count()

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.coins = str(next(self.made))


class ChangesWhenLookedAt(Cards):
    looks = 0

    def observe(self) -> dict[Role, Observation]:
        self.looks += 1
        news = (Message("user", f"look {self.looks}"),)
        return {r: Observation(news, legal=o.legal) for r, o in super().observe().items()}


class TossesGlobally(Cards):
    def step(self, actions: dict[Role, str]) -> Rewards:
        rewards = super().step(actions)
        self.coins = str(random.random())  # not self.rng
        return rewards


class SharesItsList(Cards):
    def fork(self, seed: int | None = None) -> Env:
        twin = copy.copy(self)
        twin.rng = copy.copy(self.rng)
        return twin


class SharesItsRandomness(Cards):
    def fork(self, seed: int | None = None) -> Env:
        twin = super().fork(seed)
        if seed is None:
            twin.rng = self.rng
        return twin


class ForksIntoItself(Cards):
    def fork(self, seed: int | None = None) -> Env:
        return self

    def redeal(self, role: Role, rng: random.Random) -> Env:
        return copy.deepcopy(self)


class ForksWithOtherLuck(Cards):
    def fork(self, seed: int | None = None) -> Env:
        return super().fork(0 if seed is None else seed)


class NeverEnds(Cards):
    """Forgets what was said, so the count of moves never reaches the end."""

    def step(self, actions: dict[Role, str]) -> Rewards:
        rewards = super().step(actions)
        self.said, self.coins = self.said[-3:], self.coins[-3:]
        return rewards


class AsksAgainForever(Cards):
    def step(self, actions: dict[Role, str]) -> Rewards:
        rewards = super().step(actions)
        self.loser = None
        return rewards


class ShowsTheOtherCard(Cards):
    def observe(self) -> dict[Role, Observation]:
        seen = super().observe()
        return {r: Observation((Message("user", f"{self.hands} high or low"),), True, o.legal) for r, o in seen.items()}


class ShowsTheNextCoin(Cards):
    """The future is hidden too: it leaks by looking ahead in the random numbers."""

    def observe(self) -> dict[Role, Observation]:
        news = (Message("user", f"{copy.deepcopy(self.rng).choice('HT')} is next"),)
        return {r: Observation(news, True, o.legal) for r, o in super().observe().items()}


class AsksAStranger(Cards):
    def observe(self) -> dict[Role, Observation]:
        seen = super().observe()
        return seen | {"referee": Observation((Message("user", "?"),))} if seen else {}


class AsksNobody(Cards):
    def observe(self) -> dict[Role, Observation]:
        return {}


class NamesAnUndeclaredReward(Cards):
    def outcome(self) -> Rewards:
        return super().outcome() + Rewards.team("bonus", 0.0)


class GivesNan(Cards):
    def outcome(self) -> Rewards:
        return super().outcome() + Rewards.agent("tip", {"a": float("nan")})


class PaysARoleOnTheTeamLevel(Cards):
    def outcome(self) -> Rewards:
        return super().outcome() + Rewards((Reward("tip", Level.TEAM, "a", 0.0),))


class PaysAStranger(Cards):
    def outcome(self) -> Rewards:
        return super().outcome() + Rewards.agent("tip", {"referee": 0.0})


class AcceptsTheIllegal(Cards):
    """Accepts anything as `low`, although such a reply can never win."""

    def read(self, text: str) -> str | None:
        return super().read(text) or "pass"

    def outcome(self) -> Rewards:
        return Rewards() if "pass" in self.said else super().outcome()


class RefusesTheListed(Cards):
    words = ("high", "low", "medium")


class RewardsTheEcho(Cards):
    """Finds the answer anywhere in the reply, so a prompt that names the answers is accepted."""

    def read(self, text: str) -> str | None:
        return next((word for word in ("high", "low") if word in text), None)


class SharesTasksBetweenSplits(Cards):
    @classmethod
    def make_task(cls, name: str, split: str, index: int, seed: int, options: Mapping[str, Any]) -> Task:
        return super().make_task(name, "test", index, seed, options)


class PaysTwice(Cards):
    asked = 0

    def outcome(self) -> Rewards:
        self.asked += 1
        return super().outcome() + Rewards.team("tip", float(-self.asked))


class WakesUpAgain(Cards):
    asked = False

    def outcome(self) -> Rewards:
        self.asked = True
        return super().outcome()

    def observe(self) -> dict[Role, Observation]:
        return super().observe() or ({"a": Observation((Message("user", "?"),))} if self.asked else {})


class Asking(Cards):
    """Its players may ask a tool, which does something that it must not do."""

    def ask(self, what: str) -> str:
        raise NotImplementedError

    def observe(self) -> dict[Role, Observation]:
        tool = Tool("ask", "Answers.", (Parameter("what", "anything"),), self.ask)
        return {r: replace(o, tools=(tool,)) for r, o in super().observe().items()}


class ToolMovesTheGame(Asking):
    def ask(self, what: str) -> str:
        self.coins += "H"
        return "done"


class ToolTossesACoin(Asking):
    def ask(self, what: str) -> str:
        return str(random.random())


class ToolStumbles(Asking):
    def ask(self, what: str) -> str:
        return str(int(what))


BROKEN: list[tuple[type[Cards], set[str]]] = [
    (DealtFromElsewhere, {"determinism"}),
    (ChangesWhenLookedAt, {"determinism", "hidden information"}),  # a twin's look is one more look
    (TossesGlobally, {"determinism", "fork independence"}),  # its forks cannot agree either
    (SharesItsList, {"fork independence"}),
    (SharesItsRandomness, {"fork independence"}),
    (ForksIntoItself, {"fork independence"}),
    (ForksWithOtherLuck, {"fork independence"}),
    (NeverEnds, {"termination, legal play"}),
    (AsksAgainForever, {"termination, garbage play"}),
    (ShowsTheOtherCard, {"hidden information"}),
    (ShowsTheNextCoin, {"hidden information"}),
    (AsksAStranger, {"declared roles"}),
    (AsksNobody, {"declared roles"}),
    (NamesAnUndeclaredReward, {"reward names"}),
    (GivesNan, {"reward names"}),
    (PaysARoleOnTheTeamLevel, {"reward names"}),
    (PaysAStranger, {"reward names"}),
    (AcceptsTheIllegal, {"legal lists"}),
    (RefusesTheListed, {"legal lists"}),
    (RewardsTheEcho, {"echo"}),
    (SharesTasksBetweenSplits, {"splits"}),
    (PaysTwice, {"over is over"}),
    (WakesUpAgain, {"over is over"}),
    (ToolMovesTheGame, {"tools"}),
    (ToolTossesACoin, {"tools"}),
    (ToolStumbles, {"tools"}),
]

Check = Callable[[type[Env]], list[Finding]]


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> Check:
    """Runs the suite on a class that is registered only for this test."""

    def run(cls: type[Env]) -> list[Finding]:
        monkeypatch.setitem(registry.ENVIRONMENTS.classes, "cards", cls)
        return check("cards", {})

    return run


def test_a_shipped_environment_of_free_text_conforms() -> None:
    """promise 8: if replies cannot be listed, one rule has nothing to test; all others have."""
    findings = check("negotiation", {})
    assert [f for f in findings if not f.passed] == []
    assert [f.rule for f in findings if f.detail.startswith("0 ")] == ["legal lists"]


@pytest.mark.parametrize(("name", "options"), SHIPPED)
def test_shipped_environments_conform(name: str, options: dict[str, Any]) -> None:
    """promise 8, completely, for every environment that comes with Interplay."""
    findings = check(name, options)
    assert [f.rule for f in findings] == list(RULES)
    assert [f for f in findings if not f.passed] == []
    assert not [f for f in findings if f.detail.startswith("0 ")], "a rule that looked at nothing is vacuous"


def test_a_sound_environment_with_secrets_and_chance_conforms(checked: Check) -> None:
    """promise 8: the suite gives no false alarm for the environment from which the broken ones are made."""
    findings = checked(Cards)
    assert [f for f in findings if not f.passed] == []
    assert not [f for f in findings if f.detail.startswith("0 ")]
    env, rng = make(sample_task("cards", {})), random.Random(0)
    assert len({env.redeal("a", rng).state() for _ in range(20)}) == 5, "the secret really is dealt again"


@pytest.mark.parametrize(("cls", "failing"), BROKEN, ids=lambda x: x.__name__ if isinstance(x, type) else "")
def test_a_broken_environment_is_caught_by_the_rule_it_breaks(
    cls: type[Cards], failing: set[str], checked: Check
) -> None:
    """promise 8: each part is checked, and a failure names that part."""
    assert {f.rule for f in checked(cls) if not f.passed} == failing


def test_every_rule_has_a_broken_environment_that_only_it_catches() -> None:
    """promise 8: every rule is needed."""
    assert {rule for _, failing in BROKEN if len(failing) == 1 for rule in failing} == set(RULES)


def test_what_the_environment_raises_is_a_finding(checked: Check) -> None:
    """promise 8: a crash on a bad reply is reported with its text and place; the other rules still run."""

    class Crashes(Cards):
        def read(self, text: str) -> str | None:
            return self.words[int(text == "low")] if text in self.words else self.words[len(text) + 2]

    findings = {f.rule: f for f in checked(Crashes)}
    assert len(findings) == len(RULES)
    assert not findings["termination, garbage play"].passed
    assert "IndexError: tuple index out of range" in findings["termination, garbage play"].detail
    assert "test_check.py:" in findings["termination, garbage play"].detail
    assert findings["determinism"].passed and findings["termination, legal play"].passed


def test_an_environment_that_cannot_be_made_is_a_finding(checked: Check) -> None:
    """promise 8: the suite never crashes, whatever fails."""

    class Unmakeable(Cards):
        def __init__(self, task: Task) -> None:
            raise RuntimeError("no cards")

    assert all("no cards" in f.detail for f in checked(Unmakeable) if f.rule != "splits")


def test_an_environment_without_legal_lists_is_checked_too(checked: Check) -> None:
    """promise 8: with free text there is no list to check; the other rules hold, and the detail says that nothing was
    tried."""

    class FreeText(Cards):
        words = ()

    findings = {f.rule: f for f in checked(FreeText)}
    assert all(f.passed for f in findings.values())
    assert findings["legal lists"].detail == "0 replies" and findings["echo"].detail == "20 echoing players"


class Pointing(Env):
    """A correct cooperative game: one role gives a hint, the other picks a side; both are rewarded if it is right."""

    reward_names = ("found", "illegal")
    roles = ("a", "b")

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.side = self.rng.choice(("left", "right"))
        self.said: str | None = None
        self.picked: str | None = None

    def observe(self) -> dict[Role, Observation]:
        if self.picked is not None:
            return {}
        if self.said is None:
            hints = ("warm", "cold")
            return {"a": Observation((Message("user", f"Hint at: {self.side}"),), fresh=True, legal=hints)}
        return {"b": Observation((Message("user", "Which side?"),), fresh=True, legal=("left", "right"))}

    def step(self, actions: dict[Role, str]) -> Rewards:
        ((role, text),) = actions.items()
        if role == "a":
            self.said = text if text in ("warm", "cold") else ""  # heard as silence
            return Rewards() if self.said else Rewards.process("illegal", {"a": -0.1})
        self.picked = text
        return Rewards() if text in ("left", "right") else Rewards.process("illegal", {"b": -1.0})

    def outcome(self) -> Rewards:
        return Rewards.team("found", float(self.picked == self.side))

    def state(self) -> str:
        return f"{self.side} {self.said} {self.picked}"

    def redeal(self, role: Role, rng: random.Random) -> Env:
        twin = self.fork(rng.getrandbits(62))
        assert isinstance(twin, Pointing)
        twin.side = self.side if role == "a" else rng.choice(("left", "right"))
        return twin


def test_a_partner_who_guesses_right_is_not_the_echos_doing(checked: Check) -> None:
    """Audit B8: a valid cooperative game failed the rule whenever its random partner was lucky."""
    assert [f for f in checked(Pointing) if not f.passed] == []


class Duel(Env):
    """A correct game for two players who write words. The word of `b` must contain the letter z, or `b` loses."""

    reward_names = ("won",)
    roles = ("a", "b")

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.said: dict[Role, str] = {}

    def observe(self) -> dict[Role, Observation]:
        asked = Observation((Message("user", "Say something."),), fresh=True)
        return dict.fromkeys(self.roles[len(self.said) :][:1], asked)

    def step(self, actions: dict[Role, str]) -> Rewards:
        self.said = {**self.said, **actions}
        return Rewards()

    def outcome(self) -> Rewards:
        # Two words of a win if b fails, so what an echo of a earns is due to b's random words.
        a, b = self.said["a"], self.said["b"]
        won = float("z" not in b and a.isascii() and " " in a.strip())
        return Rewards.agent("won", {"a": won, "b": -won})

    def state(self) -> str:
        return f"{self.said}"


def test_an_opponent_who_loses_by_itself_is_not_beaten_by_the_echo(checked: Check) -> None:
    """Without a list of legal actions the others say random words, and may lose to anything."""
    assert [f for f in checked(Duel) if not f.passed] == []


def test_an_echo_that_pays_is_found_in_free_text_too(checked: Check) -> None:
    """promise 8: a task whose prompt contains the answer, and which accepts any reply that contains it."""

    class FreeEcho(RewardsTheEcho):
        words = ()

        def outcome(self) -> Rewards:
            return Rewards.agent("guess", dict.fromkeys(self.roles, float(bool(self.said))))

    assert [f.rule for f in checked(FreeEcho) if not f.passed] == ["echo"]


def test_a_finding_says_what_differs_and_where(checked: Check) -> None:
    """promise 8: the author sees the first difference, not only that there is one."""
    (finding,) = [f for f in checked(ShowsTheOtherCard) if not f.passed]
    assert finding.detail.startswith("task ") and "a redeal changes what" in finding.detail
    assert "against" in finding.detail


def test_the_same_seed_gives_the_same_findings() -> None:
    """promise 8: the suite itself is deterministic."""
    assert check("tictactoe", {}, episodes=3, seed=5) == check("tictactoe", {}, episodes=3, seed=5)
    assert check("tictactoe", {}, episodes=3, seed=5) != check("tictactoe", {}, episodes=3, seed=6)


def test_a_wrong_call_is_the_callers_error() -> None:
    """promise 8: an unknown name or option is not a finding about an environment."""
    with pytest.raises(ConfigError, match="Did you mean 'tictactoe'"):
        check("tictactoes", {})
    with pytest.raises(ConfigError, match="unknown key 'sise'"):
        check("tictactoe", {"sise": 3})
