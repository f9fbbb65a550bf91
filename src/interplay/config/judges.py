"""[judges]: judges, reward models and verifiers that score replies, in addition to the environment's rewards."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from interplay.config.policies import AdapterSection
from interplay.config.section import Section
from interplay.errors import ConfigError

GOLD, HTTP, BASE = "gold:", ("http://", "https://"), "base:"
ASKED = ("pairwise", "pointwise", "rubric")  # kinds that are asked in words
MODELS = ("reward_model", "verifier")  # models that give a number
SCORING = (*MODELS, "function")  # kinds that give a number


class BiasSection(Section):
    """Biases of a rater: what it prefers besides better replies."""

    length: float = Field(0.0, description="log-odds added for each 100 characters by which the first reply is longer")
    first: float = Field(0.0, description="log-odds added for the reply that is shown first")


class JudgeTrainSection(Section):
    """Train a reward model or verifier during the run, on a simulated rater's labels of the run's own episodes."""

    labels: str = Field(
        description="gold:NAME, the component of the reward by which the simulated rater compares replies"
    )
    noise: float = Field(0.0, ge=0, lt=0.5, description="probability that the rater gives the opposite label")
    temperature: float = Field(
        0.0, ge=0, description="temperature of the rater; at 0 it always prefers the higher value"
    )
    bias: BiasSection = Field(BiasSection(), description="what the rater prefers besides better replies")
    every: int = Field(5, ge=1, description="steps between trainings of the judge; the first is after step 1")
    until: int = Field(0, ge=0, description="last step after which the judge is trained; 0: until the end of the run")
    pairs: int = Field(256, ge=2, description="new comparisons (verifier: answers) for each training")
    keep: int = Field(4096, ge=2, description="the number of newest comparisons that are kept for training")
    epochs: int = Field(2, ge=1, description="epochs over the comparisons in each training of the judge")
    batch: int = Field(64, ge=1, description="comparisons in one optimiser step")
    lr: float = Field(1e-3, gt=0, description="learning rate of the judge")
    balance: Literal["none", "class", "question", "length"] = Field(
        "question",
        description="verifier: keep as many right as wrong answers, over all tasks (class) or within each task "
        "(question); reward_model: length keeps as many comparisons that the longer reply won as comparisons that the "
        "shorter reply won, and the other values keep all",
    )
    holdout: float = Field(0.2, gt=0, lt=1, description="share of the tasks that are used only for testing")
    least: float = Field(
        0.5,
        ge=0,
        lt=1,
        description="lowest allowed accuracy on held-out tasks; below it, the judge goes back to its last version "
        "whose whole 95% interval was above this value",
    )
    adapter: AdapterSection | None = Field(None, description="train this adapter instead of all weights")


class JudgeAuditSection(Section):
    """Audit the judge during the run: compare its reward with gold, and check it for biases."""

    gold: str | None = Field(
        None,
        description="gold:NAME, a component of the reward that is not trained on, to compare the judge's reward with",
    )
    every: int = Field(1, ge=1, description="steps between comparisons with gold")
    window: int = Field(3, ge=1, description="how many of the latest comparisons with gold are averaged")
    drop: float = Field(
        0.1, gt=0, description="how far gold may fall below its best value while the judge's reward rises"
    )
    stop: bool = Field(False, description="stop the run if gold falls further than `drop`; false only warns")
    checks: list[Literal["length", "position", "echo", "style", "drift"]] = Field(
        [],
        description="biases of the judge to look for in the run's own replies; each has a metric, and a warning if it "
        "is found",
    )
    checks_every: int = Field(10, ge=1, description="steps between the checks for biases")
    pairs: int = Field(32, ge=2, description="pairs of replies that each check asks the judge about")

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

    kind: Literal["pairwise", "pointwise", "rubric", "reward_model", "verifier", "function"] = Field(
        description="pairwise compares two replies, pointwise gives a mark, rubric gives a mark for each criterion; "
        "reward_model and verifier are models that output a score; function is a Python function of yours that does"
    )
    who: str = Field(
        description="a policy, gold:NAME (a component of the reward), base:MODEL (a new reward model made from MODEL), "
        "the folder of a reward model, the http:// address of a reward server, or for kind function module:function, "
        "which gets the question and the reply as texts"
    )
    against: str | None = Field(
        None,
        description="pairwise: what replies are compared with: group (the other episodes of the task), reference (the "
        "text `reference` in the task's data or in its row of a data set), POLICY@start, or another policy (a "
        "competing agent)",
    )
    scope: Literal["reply", "episode", "team"] = Field(
        "episode",
        description="what is judged: each reply, everything that a role said, or everything that the team said",
    )
    roles: list[str] = Field([], description="the roles whose replies are judged; default: every role that is trained")
    swap: bool = Field(
        True,
        description="pairwise: ask about both orders of a pair; if the sampled verdicts disagree, the pair has none",
    )
    ties: Literal["half", "abstain"] = Field("half", description="whether a tie counts as half a win or as no verdict")
    votes: int = Field(1, ge=1, description="how often each question is asked; the answers are averaged")
    rubric: list[str] = Field([], description="rubric: the criteria, such as fairness")
    instructions: str = Field("", description="first text of the judge's prompt: what it should look at")
    scale: list[int] = Field([1, 10], description="pointwise, rubric: the lowest and the highest mark")
    marks: Literal["said", "expected"] = Field(
        "said",
        description="pointwise, rubric: said parses the judge's answer; expected is the mean over all marks of the "
        "scale, weighted by the judge's probabilities. expected needs a local policy and always gives a mark, even if "
        "the model would answer in another form",
    )
    max_tokens: int = Field(64, ge=1, description="most tokens of the judge's answer")
    temperature: float = Field(1.0, ge=0, description="sampling temperature of the judge's answer")
    timeout: float = Field(60.0, gt=0, description="http, function: seconds after which one request or call times out")
    retries: int = Field(
        6,
        ge=0,
        description="http: how often a failed request is tried again, with growing pauses; 6 retries wait 32 seconds "
        "in all, so that a server that was killed can be started again",
    )
    key_variable: str = Field("INTERPLAY_REWARD_KEY", description="http: environment variable with the server's token")
    train: JudgeTrainSection | None = Field(None, description="reward models: train them during the run")
    audit: JudgeAuditSection | None = Field(
        None, description="watch the judge during the run: compare it with gold, and look for biases"
    )

    @model_validator(mode="after")
    def _gives_marks(self) -> JudgeSection:
        if self.marks == "expected" and (self.kind not in ("pointwise", "rubric") or self.who.startswith(GOLD)):
            raise ConfigError(
                f"a judge of kind '{self.kind}' played by '{self.who}' has marks = 'expected'; expected this only for "
                "a pointwise or rubric judge that is a local policy."
            )
        return self

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
            raise ConfigError(
                f"a judge of kind '{kind}' has the rubric {self.rubric}; expected criteria for kind 'rubric', and none "
                "for the others."
            )
        if kind == "rubric" and gold:
            raise ConfigError(
                f"a rubric judge's who is '{who}', but a gold program gives only one number; expected a policy."
            )
        if self.against == "reference" and gold:
            raise ConfigError(
                f"a judge's who is '{who}' and its against is 'reference', but a reference earns no reward that a gold "
                "program could read; expected a policy as who, or against = 'group'."
            )
        module, _, function = who.partition(":")
        if kind == "function" and (gold or served or who.startswith(BASE) or not (module and function)):
            raise ConfigError(f"a judge of kind 'function' has who = '{who}'; expected module:function.")
        if served and kind not in MODELS:
            raise ConfigError(f"a judge's who is '{who}'; expected kind 'reward_model' or 'verifier' for a server.")
        if len(self.scale) != 2 or self.scale[0] >= self.scale[1]:
            raise ConfigError(f"a judge's scale is {self.scale}; expected the lowest and the highest mark.")
        if who.startswith(BASE) and self.train is None:
            raise ConfigError(
                f"a judge's who is '{who}', a model that is not trained to give scores yet; expected "
                "[judges.NAME.train]."
            )
        if self.train is not None and (kind not in MODELS or served or gold):
            raise ConfigError(
                f"a judge of kind '{kind}' played by '{who}' has [train]; expected a reward model or verifier of this "
                "run, base:MODEL or a folder. (A judge that answers in words is a policy: train it with its own "
                "recipe.)"
            )
        for name in [t.labels for t in [self.train] if t] + [a.gold for a in [self.audit] if a and a.gold]:
            if not name.startswith(GOLD):
                raise ConfigError(f"a judge's labels or gold is '{name}'; expected gold:NAME.")
        return self

    @model_validator(mode="after")
    def _balances_what_it_sees(self) -> JudgeSection:
        if self.train is not None and self.kind == "verifier" and self.train.balance == "length":
            raise ConfigError(
                "a verifier's train.balance is 'length', but a verifier sees one answer at a time; expected question, "
                "class or none."
            )
        return self

    @model_validator(mode="after")
    def _can_be_audited(self) -> JudgeSection:
        checks = self.audit.checks if self.audit is not None else ()
        if checks and self.who.startswith(GOLD):
            raise ConfigError(
                f"a judge played by '{self.who}' has audit.checks, but a program has no biases to check; expected no "
                "checks."
            )
        if "position" in checks and self.kind != "pairwise":
            raise ConfigError(
                f"a judge of kind '{self.kind}' has the check 'position', but only a pairwise judge sees replies in an "
                "order; expected other checks."
            )
        return self

    @property
    def policy(self) -> str | None:
        """Return the name of the policy that plays the judge, or None."""
        return None if self.kind in SCORING or self.who.startswith(GOLD) else self.who

    @property
    def components(self) -> list[str]:
        """Return the names of the components of the environment's reward that the judge reads."""
        watched = [self.audit.gold] if self.audit and self.audit.gold else []
        read = [self.who, *([self.train.labels] if self.train else []), *watched]
        return [name.removeprefix(GOLD) for name in read if name.startswith(GOLD)]
