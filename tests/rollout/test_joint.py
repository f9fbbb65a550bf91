"""Which joint actions a tree plan scores, and the credit of each reply."""

from __future__ import annotations

import itertools
from typing import Any, ClassVar

import pytest

from interplay.algorithms import Tree
from interplay.algorithms.credit import mix
from interplay.config import RewardSection
from interplay.envs import Env
from interplay.errors import EngineError
from interplay.types import Episode, Message, Observation, Rewards, Role, Task, Turn


class Sum(Env):
    """Roles name a number at once, in two rounds; the team earns the product of each round's numbers."""

    reward_names = ("product",)
    roles = ("a", "b")
    seen: ClassVar[list[tuple[str, ...]]] = []

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.rounds: list[dict[Role, str]] = []

    def observe(self) -> dict[Role, Observation]:
        if len(self.rounds) == 2:
            return {}
        said = self.rounds[-1] if self.rounds else {}
        return {r: Observation((Message("user", f"{r} of round {len(self.rounds)}: {said}"),)) for r in self.roles}

    def step(self, actions: dict[Role, str]) -> Rewards:
        self.rounds.append(dict(actions))
        self.seen.append(tuple(actions[r] for r in self.roles))
        value = 1.0
        for text in actions.values():
            value *= float(text or 0)
        return Rewards.team("product", value)

    def outcome(self) -> Rewards:
        return Rewards()

    def state(self) -> str:
        return str(self.rounds)


@pytest.fixture
def env(known_as: Any) -> str:
    return known_as("sum", type("Sum", (Sum,), {"seen": []}))


OFFERS = {"a": ["1", "2"], "b": ["3", "5"]}


def offered(call: Any) -> str:
    """K different numbers in round 0; 1 in round 1 and in playouts."""
    return OFFERS[call.role][call.candidate] if call.decision == 0 and not call.path else "1"


def first_round(episode: Episode, role: str) -> list[Turn]:
    return [t for t in episode.turns if (t.decision, t.role, t.playout) == (0, role, None)]


def outlooks(episode: Episode, role: str) -> list[float | None]:
    turns = first_round(episode, role)
    return [None if t.outlook is None else mix(t.outlook.rewards, role, RewardSection()) for t in turns]


def test_the_replies_of_an_aligned_joint_have_the_same_return(table: Any, env: str) -> None:
    """1·3 and 2·5, each plus 1 from the round that is played out: the k-th replies of both roles have the same
    return."""
    (episode,) = table(offered, env=env, plan=Tree(2, "playout", joint="aligned", keep="first")).play()
    assert outlooks(episode, "a") == outlooks(episode, "b") == [4.0, 11.0]
    assert [t.candidate for t in episode.line()] == [0] * 4


@pytest.mark.parametrize("keep", ["greedy", "uniform", "softmax"])
def test_aligned_joints_are_kept_whole(table: Any, env: str, keep: Any) -> None:
    """The k-th reply of each role or nothing: the kept joint action was scored as it is."""
    episodes = table(offered, env=env, plan=Tree(2, "playout", joint="aligned", keep=keep)).play(12)
    kept = [tuple(t.candidate for t in e.line() if t.decision == 0) for e in episodes]
    assert set(kept) == ({(1, 1)} if keep == "greedy" else {(0, 0), (1, 1)} if keep == "uniform" else set(kept))
    assert all(a == b for a, b in kept)


def test_crossed_joints_are_averaged(table: Any, env: str) -> None:
    """a's 1 with 3 and 5: 4 on average; its 2: 8. b's 3 with 1 and 2: 4.5; its 5: 7.5. Plus the next round."""
    (episode,) = table(offered, env=env, plan=Tree(2, "playout", joint="crossed", keep="first")).play()
    assert outlooks(episode, "a") == [5.0, 9.0]
    assert outlooks(episode, "b") == [5.5, 8.5]


@pytest.mark.parametrize(
    ("joint", "worth"),
    [("without", {"a,b": 3.0, "a": 7.0, "b": 21.0}), ("coalitions", {"a,b": 3.0, "a": 7.0, "b": 21.0, "": 49.0})],
)
def test_roles_that_are_left_out_say_the_default(table: Any, env: str, joint: Any, worth: dict[str, float]) -> None:
    """Offers 1 and 3, default 7: both turns hold what each coalition earned; the outlook is that of the whole team."""
    plan = Tree(1, "none", keep="first", joint=joint, default="7")
    (episode,) = table(offered, env=env, plan=plan).play()
    for role in ("a", "b"):
        (turn,) = first_round(episode, role)
        assert turn.outlook is not None
        assert {who: mix(r, role, RewardSection()) for who, r in turn.outlook.coalitions.items()} == worth
        assert outlooks(episode, role) == [3.0] and turn.text == OFFERS[role][0]


def test_the_default_of_a_role_left_out_is_part_of_its_history(table: Any, env: str) -> None:
    """In the playout of a coalition, the role that was left out has the default in its history."""
    game = table(offered, env=env, plan=Tree(1, "playout", keep="first", joint="without", default="777"))
    game.play()
    later = [game.renderer.tokenizer.decode(r.ids) for r in game.engine.requests if r.key[3] and r.key[5] == "a"]
    assert any("<|assistant|>777<|end|>" in text for text in later)
    assert any("<|assistant|>1<|end|>" in text for text in later)


def test_playouts_of_joints_are_told_apart(table: Any, env: str) -> None:
    plan = Tree(2, "playout", 2, joint="crossed")
    (episode,) = table(offered, env=env, plan=plan, record_playouts=True).play()
    ids = [t.id for t in episode.turns]
    assert len(ids) == len(set(ids)) and sum(t.playout is not None for t in episode.turns) == 4 * 2 * 2


def test_a_lost_coalition_spoils_the_share_but_not_the_game(table: Any, env: str) -> None:
    """If a playout fails, the decision has no credit; the episode continues."""

    def script(call: Any) -> Any:
        return EngineError("lost") if call.path else offered(call)

    (episode,) = table(script, env=env, plan=Tree(1, "playout", keep="first", joint="coalitions")).play()
    assert episode.error is None and outlooks(episode, "a") == [None]
    assert len(episode.line()) == 4


def test_bots_are_never_left_out(table: Any) -> None:
    """Only trainable roles form coalitions: a bot's move belongs to the environment."""
    plan = Tree(1, "none", keep="first", joint="coalitions", default="defect")
    (episode,) = table(lambda c: "cooperate", env="matrix", seats={"p1": "bot:random"}, plan=plan).play()
    (turn,) = [t for t in episode.turns if t.role == "p0"]
    assert turn.outlook is not None and set(turn.outlook.coalitions) == {"p0", ""}


def test_the_state_is_stamped_on_what_was_played_not_on_playouts(table: Any, env: str) -> None:
    (episode,) = table(offered, env=env, plan=Tree(2, "playout", keep="first"), record_playouts=True).play()
    states = {t.decision: t.state for t in episode.line()}
    assert states == {0: "[]", 1: "[{'a': '1', 'b': '3'}]"}
    assert {t.state for t in episode.turns if t.playout is not None} == {""}


def test_legal_actions_are_stamped(table: Any) -> None:
    (episode,) = table(lambda c: "stag", env="matrix", options={"game": "stag_hunt"}, plan=Tree(1, "none")).play()
    assert {t.observation.legal for t in episode.turns} == {("stag", "hare")}


def test_every_pair_is_asked_once(table: Any, known_as: Any) -> None:
    cls = type("Sum", (Sum,), {"seen": []})
    plan = Tree(2, "none", joint="crossed", keep="first")
    table(offered, env=known_as("sum", cls), plan=plan).play()
    first = list(itertools.product(OFFERS["a"], OFFERS["b"]))
    assert sorted(cls.seen[:5]) == sorted([*first, ("1", "3")]), "the kept joint is stepped once more"
