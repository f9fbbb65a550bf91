"""[judges]: who says what a reply is worth, besides the environment."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from interplay.config.policies import AdapterSection
from interplay.config.section import Section
from interplay.errors import ConfigError

GOLD, HTTP, BASE = "gold:", ("http://", "https://"), "base:"
ASKED = ("pairwise", "pointwise", "rubric")  # kinds that are asked in words
SCORING = ("reward_model", "verifier")  # kinds that give a number


class BiasSection(Section):
    """What a rater looks at besides the reply."""

    length: float = Field(0.0, description="log-odds for each 100 characters that the first reply is longer")
    first: float = Field(0.0, description="log-odds for the reply that is shown first")


class JudgeTrainSection(Section):
    """A reward model or verifier that learns in the run, from what a rater says about the run's own episodes."""

    labels: str = Field(description="gold:NAME, the component of the reward that the rater looks at")
    noise: float = Field(0.0, ge=0, lt=0.5, description="chance that the rater says the opposite of what it means")
    temperature: float = Field(0.0, ge=0, description="of the rater: 0 always prefers what is worth more")
    bias: BiasSection = BiasSection()
    every: int = Field(5, ge=1, description="steps between trainings; the first is after step 1")
    until: int = Field(0, ge=0, description="the last step it is trained after; 0: to the end of the run")
    pairs: int = Field(256, ge=2, description="new comparisons (verifier: answers) for each training")
    keep: int = Field(4096, ge=2, description="comparisons that are remembered, the newest ones")
    epochs: int = Field(2, ge=1, description="number of epochs")
    batch: int = Field(64, ge=1, description="comparisons of one optimiser step")
    lr: float = Field(1e-3, gt=0, description="learning rate")
    balance: Literal["none", "class", "question"] = Field(
        "question", description="verifier: as many right as wrong answers, over all or within each task"
    )
    holdout: float = Field(0.2, gt=0, lt=1, description="share of the tasks whose comparisons are only tested on")
    least: float = Field(
        0.5, ge=0, lt=1, description="held-out accuracy; below it, back to the last version whose interval is above it"
    )
    adapter: AdapterSection | None = Field(None, description="train this over the base instead of all of the base")


class JudgeAuditSection(Section):
    """Gold beside the judge's reward while the run goes on, and what the judge looks at besides the reply."""

    gold: str | None = Field(None, description="gold:NAME, the component of the reward that is not trained on")
    every: int = Field(1, ge=1, description="steps between measurements")
    window: int = Field(3, ge=1, description="measurements whose mean is compared")
    drop: float = Field(0.1, gt=0, description="how far gold may fall under its best while the judge's reward rises")
    stop: bool = Field(False, description="stop the run then; or only warn")
    checks: list[Literal["length", "position", "echo", "style", "drift"]] = Field(
        [], description="of the judge on the run's own replies; each is a metric, and a fault is a warning"
    )
    checks_every: int = Field(10, ge=1, description="steps between these checks")
    pairs: int = Field(32, ge=2, description="pairs of replies that each check asks about")

    @model_validator(mode="after")
    def _looks_at_something(self) -> JudgeAuditSection:
        if self.gold is None and not self.checks:
            raise ConfigError(
                "a judge's [audit] has neither gold nor checks; expected gold = 'gold:NAME', or checks such as "
                "['length', 'echo']."
            )
        return self


class JudgeSection(Section):
    """A judge of the learners' replies. Its rewards have the judge's name. Judges that are asked in words give rewards
    from −1 to 1. A verdict that cannot be parsed is recorded as not scored, and counts as neither good nor bad."""

    kind: Literal["pairwise", "pointwise", "rubric", "reward_model", "verifier"] = Field(
        description="pairwise compares two replies, pointwise gives a mark, rubric gives a mark for each criterion, "
        "and the others are models with a score"
    )
    who: str = Field(
        description="a policy, gold:NAME (a component of the reward), base:MODEL (a new reward model on it), the "
        "folder of one, or the http:// address of a reward server"
    )
    against: str | None = Field(
        None, description="pairwise: group (the other episodes of the task), reference (the task's), or POLICY@start"
    )
    scope: Literal["reply", "episode", "team"] = Field(
        "episode",
        description="what is judged: each reply, everything that a role said, or everything that the team said",
    )
    roles: list[str] = Field([], description="the roles whose replies are judged; default: every role that is trained")
    swap: bool = Field(True, description="ask about both orders of a pair; sampled verdicts that disagree abstain")
    ties: Literal["half", "abstain"] = Field("half", description="whether a tie counts as half a win or as no verdict")
    votes: int = Field(1, ge=1, description="the number of answers to each question; they are averaged")
    rubric: list[str] = Field([], description="rubric: the criteria, such as fairness")
    instructions: str = Field("", description="what the judge is told to look at, before anything else")
    scale: list[int] = Field([1, 10], description="pointwise, rubric: the lowest and the highest mark")
    max_tokens: int = Field(64, ge=1, description="for the judge's answer")
    temperature: float = Field(1.0, ge=0, description="for the judge's answer")
    timeout: float = Field(60.0, gt=0, description="http: seconds for one try")
    retries: int = Field(4, ge=0, description="http: how often a failed request is tried again, with growing pauses")
    key_variable: str = Field("INTERPLAY_REWARD_KEY", description="http: environment variable with the server's token")
    train: JudgeTrainSection | None = Field(None, description="reward models: train them during the run")
    audit: JudgeAuditSection | None = None

    @model_validator(mode="after")
    def _is_whole(self) -> JudgeSection:
        kind, who = self.kind, self.who
        served, gold = who.startswith(HTTP), who.startswith(GOLD)
        if (kind == "pairwise") != (self.against is not None):
            raise ConfigError(
                f"a judge of kind '{kind}' has against = {self.against!r}; expected 'group', 'reference' or "
                "POLICY@start for pairwise judges, and nothing for the others."
            )
        if (kind == "rubric") != bool(self.rubric):
            raise ConfigError(f"a judge of kind '{kind}' has the rubric {self.rubric}; expected criteria for 'rubric'.")
        if kind == "rubric" and gold:
            raise ConfigError(f"a rubric judge's who is '{who}'; expected a policy: a gold program gives one number.")
        if served and kind not in SCORING:
            raise ConfigError(f"a judge's who is '{who}'; expected kind 'reward_model' or 'verifier' for a server.")
        if len(self.scale) != 2 or self.scale[0] >= self.scale[1]:
            raise ConfigError(f"a judge's scale is {self.scale}; expected the lowest and the highest mark.")
        if who.startswith(BASE) and self.train is None:
            raise ConfigError(f"a judge's who is '{who}', a model without a score; expected [judges.NAME.train].")
        if self.train is not None and (kind not in SCORING or served or gold):
            raise ConfigError(
                f"a judge of kind '{kind}' played by '{who}' has [train]; expected a reward model or verifier of this "
                "run, base:MODEL or a folder. (A judge that speaks is a policy: train it by a recipe of its own.)"
            )
        if self.audit is not None and self.audit.checks:
            if gold:
                raise ConfigError(f"a judge played by '{who}' has audit.checks; expected none: a program has no taste.")
            if "position" in self.audit.checks and kind != "pairwise":
                raise ConfigError(
                    f"a judge of kind '{kind}' has the check 'position'; expected it of pairwise judges: the others "
                    "look at one reply at a time."
                )
        for name in [t.labels for t in [self.train] if t] + [a.gold for a in [self.audit] if a and a.gold]:
            if not name.startswith(GOLD):
                raise ConfigError(f"a judge's labels or gold is '{name}'; expected gold:NAME.")
        return self

    @property
    def policy(self) -> str | None:
        """The policy that plays the judge, if one does."""
        return None if self.kind in SCORING or self.who.startswith(GOLD) else self.who

    @property
    def components(self) -> list[str]:
        """The components of the environment's reward that it reads."""
        watched = [self.audit.gold] if self.audit and self.audit.gold else []
        read = [self.who, *([self.train.labels] if self.train else []), *watched]
        return [name.removeprefix(GOLD) for name in read if name.startswith(GOLD)]
