"""Bots with a style, which play the other roles in environments where a judge decides what is good."""

from __future__ import annotations

import random
from typing import ClassVar

from interplay import envs
from interplay.agents.bots.bot import Bot, make_bot, register_bot
from interplay.envs.dialogue.preference import Preference
from interplay.envs.dialogue.repair import OPERATIONS, Repair, changed, changes
from interplay.envs.dialogue.retrieval import Retrieval, passages
from interplay.envs.dialogue.story import Sentence, Story, grammar
from interplay.envs.env import Env
from interplay.envs.games.negotiation import WORTH, Negotiation, Three, worth
from interplay.errors import ConfigError, did_you_mean
from interplay.types import Role, seed_of


class StyledBot(Bot):
    """A bot with several styles; the first one is the default."""

    takes = "a style"
    STYLES: ClassVar[tuple[str, ...]]

    def __init__(self, env_name: str, setting: str = "") -> None:
        super().__init__(env_name, setting)
        self.style = setting or self.STYLES[0]
        if self.style not in self.STYLES:
            raise ConfigError(f"bot '{self.name}' has the style '{setting}'; {did_you_mean(setting, self.STYLES)}")


@register_bot("writer")
class WriterBot(StyledBot):
    """Writes a story's next sentence: `writer:plain`, `:traveller`, `:collector`, or `:liar`, who contradicts it."""

    STYLES = ("plain", "traveller", "collector", "liar")

    def act(self, env: Env, role: Role, rng: random.Random) -> str:
        assert isinstance(env, Story)
        known = {text: s for text, s in grammar(env.task.data["mode"]).items() if s is not None and s.verb != "die"}
        able = {text: s for text, s in known.items() if env.can(s) != (self.style == "liar")}
        liked = [text for text, s in able.items() if self._likes(s)]
        return rng.choice(liked or list(able) or list(grammar(env.task.data["mode"])))

    def _likes(self, s: Sentence) -> bool:
        return s.verb in {"traveller": ("go",), "collector": ("take", "drop", "give")}.get(self.style, (s.verb,))

    def suits(self, env: Env) -> None:
        if not isinstance(env, Story) or env.task.data["mode"] == "free":
            self.refuse("is not a story of listed sentences; expected story with mode signs or words")


@register_bot("haggler")
class HagglerBot(StyledBot):
    """Bargains: `haggler:tough` wants nearly all, `:soft` accepts half, `:mirror` concedes as much as you do."""

    STYLES = ("soft", "tough", "mirror")

    def act(self, env: Env, role: Role, rng: random.Random) -> str:
        assert isinstance(env, Negotiation)
        me = env.roles.index(role)
        mine, goal = env.values[me], self._goal(env, me)
        if env.said and worth(env.rest(env.said[-1][1]), mine) >= goal:
            return "accept"
        fit = [keeps for keeps in env.splits() if worth(keeps, mine) >= goal]
        a, b, c = min(fit, key=lambda keeps: (worth(keeps, mine), sum(keeps), rng.random()))
        return f"offer {a} {b} {c}"

    def _goal(self, env: Negotiation, me: int) -> int:
        """How much it wants now. Near the end it wants half, because half is better than nothing."""
        late = len(env.said) >= env.task.data["turns"] - 2
        if self.style == "tough":
            return 5 if late else 8
        if self.style == "soft":
            return 4 if late else 5
        theirs: list[Three] = [keeps for _, keeps in env.said[1 - me :: 2]]
        offered = max((worth(env.rest(keeps), env.values[me]) for keeps in theirs), default=0)
        return max(4, min(WORTH - 2, WORTH - offered))

    def suits(self, env: Env) -> None:
        if not isinstance(env, Negotiation):
            self.refuse("is not a negotiation; expected negotiation")


@register_bot("replay")
class ReplayBot(Bot):
    """Repeats what a bot said when it played the same task with itself: `replay:writer:plain`. It does not react."""

    takes = "a bot"

    def __init__(self, env_name: str, setting: str = "") -> None:
        super().__init__(env_name, setting)
        if not setting:
            raise ConfigError("bot 'replay' needs a bot after a colon; expected for example replay:writer:plain.")
        self.setting = setting
        self.bot = make_bot(setting, env_name)

    def act(self, env: Env, role: Role, rng: random.Random) -> str:
        assert isinstance(env, Story | Negotiation | Retrieval | Repair)
        logged, said = envs.make(env.task), []
        dice = random.Random(seed_of("replay", env.task.id, self.setting))
        while seen := logged.observe():
            actions = {r: self.bot.act(logged, r, dice) for r in seen}
            said += [text for r, text in actions.items() if r == role]
            logged.step(actions)
        turn = env.taken(role)
        return said[turn] if turn < len(said) else said[-1] if said else self.bot.act(env, role, rng)

    def suits(self, env: Env) -> None:
        self.bot.suits(env)


@register_bot("rater")
class RaterBot(Bot):
    """Gives the label that people gave, in `preference`. A judge that imitates it learns their labels."""

    def act(self, env: Env, role: Role, rng: random.Random) -> str:
        assert isinstance(env, Preference)
        return env.right

    def suits(self, env: Env) -> None:
        if not isinstance(env, Preference):
            self.refuse("has no labels by people; expected preference")


@register_bot("finder")
class FinderBot(StyledBot):
    """Reports passages in `retrieval`: `finder:helpful` what is needed, `:idle` anything true, `:liar` something
    false."""

    STYLES = ("helpful", "idle", "liar")

    def act(self, env: Env, role: Role, rng: random.Random) -> str:
        assert isinstance(env, Retrieval)
        if role == "learner":
            return rng.choice(env.observe()[role].legal)
        if self.style == "idle":
            return rng.choice(sorted(env.true))
        if self.style == "liar":
            wrong = [p for p in passages() if p not in env.true]
            about = [p for p in wrong if p[0] in (env.asked, env.lives[env.asked])]
            return rng.choice(about or wrong)
        mine = [p for i, p in enumerate(env.reported) if env.roles[i % 2] == role]
        return rng.choice(sorted(env.needed - set(mine)) or sorted(env.true))

    def suits(self, env: Env) -> None:
        if not isinstance(env, Retrieval):
            self.refuse("has no passages to report; expected retrieval")


@register_bot("breaker")
class BreakerBot(StyledBot):
    """Plants bugs in `repair`: `breaker:early` in the first operation, `:late` in the last, `:subtle` uses the next
    operation in the list, `:hunter` plants a bug again where one was not repaired."""

    STYLES = ("early", "late", "subtle", "hunter")

    def act(self, env: Env, role: Role, rng: random.Random) -> str:
        assert isinstance(env, Repair)
        if role == "learner":
            return rng.choice(changes())
        bugs = [c for c in changes() if changed(env.right, c) != env.right]
        if self.style == "subtle":
            place = rng.randrange(len(env.right))
            after = OPERATIONS.index(env.right[place]) + 1
            return f"{place + 1}{OPERATIONS[after % len(OPERATIONS)]}"
        if self.style == "hunter":
            missed = [bug for bug, ok in zip(env.bugs, env.mended, strict=True) if not ok]
            return rng.choice([b for b in bugs if not missed or b[0] == missed[-1][0]])
        return rng.choice([b for b in bugs if b[0] == ("1" if self.style == "early" else str(len(env.right)))])

    def suits(self, env: Env) -> None:
        if not isinstance(env, Repair):
            self.refuse("has no program to break; expected repair")
