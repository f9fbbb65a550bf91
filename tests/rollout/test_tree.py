"""Decisions under a tree plan: candidates, forks, outlooks, the kept candidate, and lost candidates."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from interplay.algorithms import Independent, Tree
from interplay.algorithms.credit import centred, grade_candidates, mix
from interplay.config import RewardSection, RolloutSection
from interplay.envs import Env, make
from interplay.errors import ConfigError, EngineError
from interplay.evaluation.budget import Purse, Thrifty
from interplay.rollout.records import to_json
from interplay.types import Credit, Episode, Message, Observation, Outlook, Rewards, Role, Status, Task, Turn

# On a 2×2 board any two cells are a line: X wins with its second stone, whatever anybody does.
SMALL = {"size": 2, "line": 2}


def no_continuation(candidates: int, **settings: Any) -> Tree:
    return Tree(candidates, "none", **settings)


def playouts(candidates: int, number: int = 1, **settings: Any) -> Tree:
    return Tree(candidates, "playout", number, **settings)


def at(episode: Episode, decision: int, role: str) -> list[Turn]:
    """The candidates of one decision."""
    return [t for t in episode.turns if (t.decision, t.role, t.playout) == (decision, role, None)]


def outlooks(turns: list[Turn], gamma: float = 1.0) -> list[float | None]:
    weights = RewardSection(gamma=gamma)
    return [None if t.outlook is None else mix(t.outlook.rewards, t.role, weights) for t in turns]


def free_cell(call: Any) -> str:
    return call.choose(call.free)


# -- candidates -------------------------------------------------------------------------------------------------------


def test_every_decision_has_k_candidates_from_one_prompt_and_keeps_one(table: Any) -> None:
    """The kept candidates are the line of play; each candidate was drawn with its own random numbers."""
    (episode,) = table(free_cell, plan=playouts(4)).play()
    decisions = Counter((t.decision, t.role) for t in episode.turns)
    assert set(decisions.values()) == {4}
    for decision, role in decisions:
        group = at(episode, decision, role)
        assert [t.candidate for t in group] == [0, 1, 2, 3]
        assert sum(t.kept for t in group) == 1
        assert len({t.asked for t in group}) == len({t.keys.prompt for t in group}) == 1
    assert [t.decision for t in episode.line()] == list(range(len(decisions)))
    assert len({t.id for t in episode.turns}) == len(episode.turns)
    assert len({t.text for t in at(episode, 0, "X")}) > 1


def test_a_later_decision_sees_the_kept_move(table: Any) -> None:
    """The forks of rejected candidates have no effect on what follows."""
    (episode,) = table(free_cell, plan=playouts(3)).play()
    env = make(episode.task)
    for turn in episode.line():
        assert env.observe()[turn.role].messages == turn.observation.messages
        env.step({turn.role: turn.text})
    assert not env.observe() and len(episode.line()) > 4


@pytest.mark.parametrize("rival", ["bot:first", "frozen"])
def test_only_trainable_seats_have_candidates(table: Any, rival: str) -> None:
    """A bot or a frozen policy gives one reply, without an outlook; the other seat still has K candidates."""
    (episode,) = table(free_cell, seats={"O": rival}, plan=playouts(3)).play()
    assert {len(at(episode, t.decision, "O")) for t in episode.line("O")} == {1}
    assert {len(at(episode, t.decision, "X")) for t in episode.line("X")} == {3}
    assert all(t.outlook is None and t.kept for t in episode.turns if t.role == "O")
    assert all(t.outlook is not None for t in episode.turns if t.role == "X")


def test_a_player_that_cannot_be_copied_is_refused(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A budget is spent on one line of play: independent episodes can use such a player, and a tree says why it
    cannot."""
    seats = table(free_cell, plan=playouts(2))
    thrifty = {role: Thrifty(seats.agent(role), Purse(100), free=False, policy="thrifty") for role in "XO"}
    monkeypatch.setattr(seats, "agent", thrifty.get)
    with pytest.raises(ConfigError, match="thrifty in role X plays only one line and cannot be copied"):
        seats.play()
    seats.plan = Independent()
    (episode,) = seats.play()
    assert episode.error is None and episode.turns


# -- outlooks ---------------------------------------------------------------------------------------------------------


def test_playouts_score_a_candidate_by_how_its_fork_ended(table: Any) -> None:
    """2×2 board, γ 0.5. X's first move wins one X turn later: 0.5. O's −1 arrives on X's move, before O acts again: −1,
    not discounted. X's second move ends the game: 1. An illegal first move: −1, and −1 for the lost game."""
    moves = {(0, 0): "1", (0, 1): "5"}

    def script(call: Any) -> str:
        return moves.get((call.decision, call.candidate), free_cell(call)) if not call.path else free_cell(call)

    reward = RewardSection(gamma=0.5)
    (episode,) = table(script, options=SMALL, plan=playouts(2), reward=reward).play()
    assert outlooks(at(episode, 0, "X")) == [0.5, -2.0]
    assert outlooks(at(episode, 1, "O")) == [-1.0, -1.0]
    assert outlooks(at(episode, 2, "X")) == [1.0, 1.0]
    assert episode.line()[0].text == "1", "greedy keeps the better candidate"


def test_several_playouts_are_averaged(table: Any) -> None:
    """X's first move; in playout 0 O forfeits (X gets 1), in playout 1 X forfeits at its next move (−1 and −1)."""

    def script(call: Any) -> str:
        if not call.path:
            return call.free[call.candidate % len(call.free)]
        forfeits = (call.path[-1] == 0 and call.role == "O") or (call.path[-1] == 1 and call.role == "X")
        return "99" if forfeits else call.free[0]

    (episode,) = table(script, plan=playouts(2, 2)).play()
    assert outlooks(at(episode, 0, "X")) == [-0.5, -0.5]  # (1 − 2) / 2


def test_playouts_are_played_by_the_same_seats(table: Any) -> None:
    """O is a bot in playouts too: the engine only gets requests for X."""
    game = table(free_cell, seats={"O": "bot:first"}, plan=playouts(2), record_playouts=True)
    (episode,) = game.play()
    assert {request.key[5] for request in game.engine.requests} == {"X"}
    assert {t.policy for t in episode.turns if t.role == "O" and t.playout is not None} == {"bot:first"}


def test_playouts_are_recorded_on_demand_and_never_part_of_the_line(table: Any) -> None:
    """A playout's turn has its number set, is not in line(), and has no outlook, so it is never trained."""
    (plain,) = table(free_cell, plan=playouts(3, 2)).play()
    (full,) = table(free_cell, plan=playouts(3, 2), record_playouts=True).play()
    assert all(t.playout is None for t in plain.turns)
    extra = [t for t in full.turns if t.playout is not None]
    assert {t.playout for t in extra} >= {0, 1}
    assert all(t.outlook is None and t not in full.line() for t in extra)
    assert [t.id for t in full.line()] == [t.id for t in plain.line()], "recording changes nothing"
    assert len({t.id for t in full.turns}) == len(full.turns)


def test_playouts_of_roles_that_act_at_once_are_told_apart(table: Any) -> None:
    """p0's candidate 1 and p1's candidate 1 are different lines of play, so their turns need different ids."""
    game = table(
        lambda c: ("stag", "hare")[c.candidate], env="matrix", options={"game": "stag_hunt", "rounds": 2},
        plan=playouts(2), record_playouts=True,
    )  # fmt: skip
    (episode,) = game.play()
    assert any(t.playout is not None for t in episode.turns)
    assert [i for i, n in Counter(t.id for t in episode.turns).items() if n > 1] == []


def test_candidates_that_said_the_same_share_one_outlook(table: Any) -> None:
    """They led to the same state, so luck in their continuations must not make them differ."""
    moves = ["1", "2", "1", "2", "1"]

    def script(call: Any) -> str:
        return moves[call.candidate] if not call.path and call.decision == 0 else free_cell(call)

    for episode in table(script, plan=playouts(5, 3), seats={"O": "bot:random"}).play(6):
        found = outlooks(at(episode, 0, "X"))
        assert found[0] == found[2] == found[4] and found[1] == found[3]


def test_candidates_that_said_the_same_pool_their_playouts(table: Any) -> None:
    """Four of five first moves are equal and share their playouts; the fifth has its own. Only playout 3 is lost: a
    quarter."""

    def script(call: Any) -> str:
        if not call.path:
            return "2" if call.candidate == 4 else "1"
        return "99" if call.path[-1] == 3 and call.role == "X" else call.free[0]

    (episode,) = table(script, plan=playouts(5), record_playouts=True).play()
    from_opening = {t.id.split("/")[0].rpartition("#0")[2] for t in episode.turns if "#0.0." in t.id}
    assert from_opening == {".0.0.0", ".0.0.1", ".0.0.2", ".0.0.3", ".0.4.0"}
    assert outlooks(at(episode, 0, "X"))[:4] == [(3 - 2) / 4] * 4


def agreeing(call: Any) -> str:
    """All open in the middle; later decisions are drawn."""
    return "5" if call.decision == 0 and not call.path else free_cell(call)


@pytest.mark.parametrize("keep", ["uniform", "first", "greedy"])
def test_where_all_say_the_same_nobody_plays_on_and_no_advantage_changes(table: Any, keep: Any) -> None:
    """Only work without effect is saved: the line of play and every advantage stay the same."""

    def played(compares: bool) -> list[Episode]:
        plan = playouts(3, 2, keep=keep, compares=compares)
        episodes: list[Episode] = table(agreeing, plan=plan, record_playouts=True, seats={"O": "bot:random"}).play(4)
        return episodes

    def credited(episodes: list[Episode]) -> dict[str, float | None]:
        given = Credit()
        grade_candidates(episodes, given, RewardSection(), lambda returns: centred(returns, scale=True))
        return {t.id: given.advantage(t) for e in episodes for t in e.turns if t.playout is None}

    whole, spared = played(False), played(True)
    assert credited(spared) == credited(whole) and any(credited(spared).values())
    assert [e.final_state for e in spared] == [e.final_state for e in whole]
    assert [e.own for e in spared] == [e.own for e in whole]
    from_opening = [t for e in spared for t in e.turns if t.playout is not None and "#0.0." in t.id]
    if keep == "greedy":  # what the policy itself earns is read off the opening's playouts
        assert from_opening
    else:
        assert not from_opening and all(t.outlook == Outlook() for t in at(spared[0], 0, "X"))
    assert any(t.playout is not None for e in spared for t in e.turns)


def test_an_outcome_that_only_the_kept_line_reached_never_enters(table: Any) -> None:
    """In the real game X forfeits its second move; the outlook of its first move still comes from the playouts."""

    def script(call: Any) -> str:
        return "99" if not call.path and call.decision == 2 else call.free[0]

    (episode,) = table(script, plan=playouts(2)).play()
    opening = next(t for t in at(episode, 0, "X") if t.kept)
    blunder = episode.line("X")[1]
    assert blunder.status is Status.ILLEGAL and outlooks([blunder]) == [-2.0]
    assert outlooks([opening]) == [1.0]  # first free cell against first free cell: X wins on a diagonal


# -- simultaneous moves -----------------------------------------------------------------------------------------------


def test_candidates_are_scored_with_the_others_at_candidate_0(table: Any) -> None:
    """Prisoner's dilemma. p0 offers cooperate, defect against p1's candidate 0, which is defect: 0 and 1. p1 offers
    defect, cooperate against p0's candidate 0, which is cooperate: 5 and 3. Greedy keeps defect, defect: 1 each."""
    offers = {"p0": ["cooperate", "defect"], "p1": ["defect", "cooperate"]}
    (episode,) = table(lambda c: offers[c.role][c.candidate], env="matrix", plan=no_continuation(2)).play()
    p0, p1 = at(episode, 0, "p0"), at(episode, 0, "p1")
    assert outlooks(p0) == [0.0, 1.0]
    assert outlooks(p1) == [5.0, 3.0]
    assert [t.text for t in episode.line()] == ["defect", "defect"]
    assert [[r.value for r in t.rewards] for t in episode.line()] == [[1.0], [1.0]]
    assert episode.rewards == Rewards.agent("payoff", {"p0": 1.0, "p1": 1.0})


class Counting(Env):
    """One move of two roles at once; every step of every fork is recorded."""

    reward_names = ("score",)
    roles = ("a", "b")
    steps: ClassVar[list[tuple[str, str]]] = []

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.said: tuple[str, str] | None = None

    def observe(self) -> dict[Role, Observation]:
        return {} if self.said else {r: Observation((Message("user", f"You are {r}"),), fresh=True) for r in self.roles}

    def step(self, actions: dict[Role, str]) -> Rewards:
        self.said = (actions["a"], actions["b"])
        self.steps.append(self.said)
        return Rewards.process("score", {r: float(text) for r, text in actions.items()})

    def outcome(self) -> Rewards:
        return Rewards()

    def state(self) -> str:
        return str(self.said)


def test_the_kept_joint_action_is_stepped_once(table: Any, known_as: Any) -> None:
    """One step per candidate on its own fork, and one for the kept joint action, which was not scored before."""
    cls = type("Counting", (Counting,), {"steps": []})
    offers = {"a": ["1", "2"], "b": ["3", "4"]}
    (episode,) = table(
        lambda c: offers[c.role][c.candidate], env=known_as("counting", cls), plan=no_continuation(2)
    ).play()
    assert sorted(cls.steps[:-1]) == [("1", "3"), ("1", "3"), ("1", "4"), ("2", "3")]
    assert cls.steps[-1] == ("2", "4")
    assert episode.final_state == "('2', '4')"
    assert [[r.value for r in t.rewards] for t in episode.line()] == [[2.0], [4.0]]


# -- what is kept -----------------------------------------------------------------------------------------------------

BANDIT = {"actions": [["up", "down"]], "payoff": [[0], [1]]}


def kept_share(table: Any, keep: str, temperature: float = 1.0, games: int = 200) -> float:
    """How often `down`, which is worth 1 against 0, is kept."""
    plan = no_continuation(2, keep=keep, keep_temperature=temperature)
    game = table(lambda c: ("up", "down")[c.candidate], env="matrix", options=BANDIT, plan=plan)
    return sum(e.line()[0].text == "down" for e in game.play(games)) / games


def test_greedy_keeps_the_best(table: Any) -> None:
    assert kept_share(table, "greedy", games=50) == 1.0


def test_uniform_keeps_any(table: Any) -> None:
    assert kept_share(table, "uniform") == pytest.approx(0.5, abs=0.08)


def test_softmax_keeps_by_value_and_temperature(table: Any) -> None:
    """e/(1 + e) at temperature 1; nearly always the best at a low temperature, nearly random at a high one."""
    assert kept_share(table, "softmax") == pytest.approx(0.731, abs=0.08)
    assert kept_share(table, "softmax", 0.05, games=100) == 1.0
    assert kept_share(table, "softmax", 100.0) == pytest.approx(0.5, abs=0.08)


def test_greedy_breaks_ties_at_random(table: Any) -> None:
    """Otherwise candidate 0 would be kept as long as nothing is known."""
    options = {"actions": [["up", "down"]], "payoff": [[1], [1]]}
    game = table(
        lambda c: ("up", "down")[c.candidate], env="matrix", options=options, plan=no_continuation(2, keep="greedy")
    )
    assert {e.line()[0].candidate for e in game.play(20)} == {0, 1}


class Dice(Env):
    """The reward is pure luck, drawn from the environment's own random numbers; two rounds."""

    reward_names = ("luck",)
    roles = ("a",)

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.round = 0

    def observe(self) -> dict[Role, Observation]:
        return {} if self.round == 2 else {"a": Observation((Message("user", f"round {self.round}"),), fresh=True)}

    def step(self, actions: dict[Role, str]) -> Rewards:
        self.round += 1
        return Rewards.process("luck", {"a": self.rng.random()})

    def outcome(self) -> Rewards:
        return Rewards()

    def state(self) -> str:
        return str(self.round)


def test_choosing_the_best_does_not_harvest_luck(table: Any, known_as: Any) -> None:
    """Forks share random numbers, so candidates tie; the kept one is stepped with new random numbers."""
    for episode in table(lambda c: str(c.candidate), env=known_as("dice", Dice), plan=no_continuation(3)).play(5):
        for turn in episode.line():
            found = outlooks(at(episode, turn.decision, "a"))
            assert found[0] == found[1] == found[2]
            assert mix(turn.rewards, "a", RewardSection()) != found[0]


class Relay(Env):
    """Two rounds: the planner's word earns nothing; the actor earns 1 for the team if the word was good."""

    reward_names = ("progress", "end")
    roles = ("planner", "actor")

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.said: tuple[str, ...] = ()

    def observe(self) -> dict[Role, Observation]:
        role = self.roles[len(self.said) % 2]
        return {} if len(self.said) == 4 else {role: Observation((Message("user", str(self.said)),), fresh=True)}

    def step(self, actions: dict[Role, str]) -> Rewards:
        ((role, text),) = actions.items()
        earned = role == "actor" and self.said[-1] == "good"
        self.said += (text,)
        return Rewards.team("progress", float(earned))

    def outcome(self) -> Rewards:
        return Rewards.team("end", 5.0)

    def state(self) -> str:
        return str(self.said)


@pytest.mark.parametrize(
    ("continuation", "first", "last"),
    [("none", [0.0, 0.0], [0.0, 0.0]), ("round", [1.0, 0.0], [6.0, 5.0]), ("playout", [7.0, 6.0], [6.0, 5.0])],
)
def test_a_round_ends_where_the_role_is_asked_again(
    table: Any, known_as: Any, continuation: Any, first: list[float], last: list[float]
) -> None:
    """The planner says good or bad (in playouts always good), then the actor acts; the end is worth 5."""

    def script(call: Any) -> str:
        return "go" if call.role == "actor" else "good" if call.path else ("good", "bad")[call.candidate]

    (episode,) = table(script, env=known_as("relay", Relay), plan=Tree(2, continuation, keep="first")).play()
    assert outlooks(at(episode, 0, "planner")) == first
    assert outlooks(at(episode, 2, "planner")) == last
    actor = {"none": 1.0, "round": 1.0, "playout": 7.0}[continuation]
    assert outlooks(at(episode, 1, "actor")) == [actor, actor]


# -- critic -----------------------------------------------------------------------------------------------------------


class Oracle:
    """A critic that returns given values and records its questions."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str]] = []
        self.reached: list[tuple[str, str, str, float]] = []

    def arrived(self, role: Role, env: Env, turn: Turn, rewards: Rewards) -> None:
        self.reached.append((role, turn.text, env.state(), mix(rewards, role, RewardSection())))

    async def value(self, role: Role, env: Env, turn: Turn) -> float:
        self.asked.append((role, turn.text, env.state()))
        return {"1": 0.25, "2": 0.75}.get(turn.text, 0.0)


def test_a_critic_continues_where_the_game_goes_on(table: Any) -> None:
    """The outlook is the step's rewards plus the critic's value of the next state; at a true end no critic is asked."""
    oracle = Oracle()
    moves = {(0, 0): "1", (0, 1): "2", (0, 2): "99"}

    def script(call: Any) -> str:
        return moves.get((call.decision, call.candidate), call.free[0])

    (episode,) = table(script, plan=Tree(3, "critic"), options=SMALL, critic=oracle).play()
    opening = at(episode, 0, "X")
    assert outlooks(opening) == [0.25, 0.75, -2.0]
    assert opening[0].outlook is not None
    assert [r.name for r in opening[0].outlook.rewards] == ["critic"]
    after = make(episode.task)
    after.step({"X": "1"})
    assert ("X", "1", after.state()) in oracle.asked
    assert not any("won" in state for _, _, state in oracle.asked)
    assert outlooks(at(episode, 2, "X"))[0] == 1.0
    assert opening[1].kept


def test_a_critic_is_told_the_state_that_was_really_reached(table: Any) -> None:
    """Two rounds of the prisoner's dilemma. A candidate is scored with the other role's first reply, cooperate. Greedy
    keeps defect for both. The critic must learn from defect, defect and its payoff of 1, and not from what was
    scored."""
    oracle = Oracle()
    offers = ["cooperate", "defect"]
    plan = Tree(2, "critic", keep="greedy")
    (episode,) = table(
        lambda c: offers[c.candidate], env="matrix", options={"rounds": 2}, plan=plan, critic=oracle
    ).play()
    assert [t.text for t in episode.line()][:2] == ["defect", "defect"]
    reached = "round 2 of 2; played: defect defect"
    assert reached not in {state for _, _, state in oracle.asked}
    assert oracle.reached == [("p0", "defect", reached, 1.0), ("p1", "defect", reached, 1.0)], "and no true end"


def test_a_critics_value_is_in_mixed_units_already(table: Any) -> None:
    """With weight 0 for process rewards and half weights for components, candidates still differ by the critic's
    value."""
    weights = RewardSection(process=0.0, weights={"critic": 0.5})
    table_ = table(lambda c: "12"[c.candidate], plan=Tree(2, "critic"), options=SMALL, critic=Oracle(), reward=weights)
    (episode,) = table_.play()
    assert [mix(t.outlook.rewards, "X", weights) for t in at(episode, 0, "X") if t.outlook] == [0.25, 0.75]


# -- what the policy itself earns ----------------------------------------------------------------------------------


def own(episode: Episode, role: str) -> list[float]:
    return [mix(play, role, RewardSection()) for play in episode.own]


def test_a_greedy_tree_says_what_its_policy_earns(table: Any) -> None:
    """Two arms worth 0 and 1, both drawn: the kept line always earns 1, the policy ½."""
    game = table(lambda c: ("up", "down")[c.candidate], env="matrix", options=BANDIT, plan=playouts(2, keep="greedy"))
    (episode,) = game.play()
    assert mix(episode.rewards, "p0", RewardSection()) == 1.0 and own(episode, "p0") == [0.0, 1.0]


def test_what_was_drawn_more_often_counts_more_often(table: Any) -> None:
    """up, down, down: 2/3, although equal replies are scored once."""
    game = table(lambda c: ("up", "down", "down")[c.candidate], env="matrix", options=BANDIT, plan=playouts(3))
    assert own(game.play()[0], "p0") == [0.0, 1.0, 1.0]


def test_the_playouts_of_the_first_choice_are_the_policys_own_plays_undiscounted(table: Any) -> None:
    """Three rounds of 0 or 1, where all playouts say `down`: 0 or 1 in the first round, plus 2."""
    script = lambda c: "down" if c.path else ("up", "down")[c.candidate]  # noqa: E731
    options = {**BANDIT, "rounds": 3}
    for gamma in (1.0, 0.5):
        game = table(script, env="matrix", options=options, plan=Tree(2, "playout"), reward=RewardSection(gamma=gamma))
        (episode,) = game.play()
        assert own(episode, "p0") == [2.0, 3.0]
        assert mix(episode.rewards, "p0", RewardSection()) == 3.0


@pytest.mark.parametrize("continuation", ["none", "round"])
def test_without_playouts_to_the_end_a_greedy_tree_does_not_know_what_its_policy_earns(
    table: Any, continuation: Any
) -> None:
    script = lambda c: ("up", "down")[c.candidate]  # noqa: E731
    (episode,) = table(script, env="matrix", options={**BANDIT, "rounds": 3}, plan=Tree(2, continuation)).play()
    assert episode.plays == () == episode.own


@pytest.mark.parametrize("plan", [Tree(2, "none", keep="uniform"), Tree(2, "none", keep="first"), Independent(1)])
def test_where_choice_is_not_by_worth_the_line_says_it(table: Any, plan: Any) -> None:
    (episode,) = table(lambda c: ("up", "down")[c.candidate], env="matrix", options=BANDIT, plan=plan).play()
    assert episode.plays is None and episode.own == (episode.rewards,)


# -- failures and limits ----------------------------------------------------------------------------------------------


def losing(*lost: int, playout: bool = False) -> Callable[[Any], str | Exception]:
    """The engine fails for these candidates of the first decision (or for their playouts)."""

    def script(call: Any) -> str | Exception:
        where = call.path[1] if call.path else call.candidate
        first = call.path[:1] == (0,) if call.path else call.decision == 0
        if first and where in lost and bool(call.path) == playout:
            return EngineError("gone.")
        return "123"[call.candidate] if not call.path and call.decision == 0 else free_cell(call)

    return script


@pytest.mark.parametrize(("playout", "lost"), [(False, 1), (False, 0), (True, 1)])
def test_a_group_that_loses_a_candidate_goes_on_with_one_less(table: Any, playout: bool, lost: int) -> None:
    """Promise 7: the lost candidate is left out and not replaced by an empty action; the episode is fine."""
    (episode,) = table(losing(lost, playout=playout), plan=playouts(3)).play()
    assert episode.error is None
    assert [t.candidate for t in at(episode, 0, "X")] == [k for k in range(3) if k != lost]
    assert all(t.text and t.outlook is not None for t in episode.turns)
    assert len(at(episode, 1, "O")) == 3


def test_a_group_that_loses_all_candidates_is_an_error_of_the_episode(table: Any) -> None:
    first, second = table(
        lambda c: EngineError("gone.") if c.task.endswith("-0") else free_cell(c), plan=playouts(2)
    ).play(2)
    assert (first.error, first.turns) == ("EngineError: gone.", [])
    assert second.error is None and second.turns


def test_a_decision_that_nobody_could_score_is_played_on_without_credit(table: Any) -> None:
    """All playouts failed: one candidate is played without an outlook, so it is never trained."""
    (episode,) = table(losing(0, 1, 2, playout=True), plan=playouts(3)).play()
    assert episode.error is None
    (turn,) = at(episode, 0, "X")
    assert turn.outlook is None and turn.kept and turn.text == "1"


class Fragile(Counting):
    """Fails when `a` says 2; otherwise it has two rounds."""

    def observe(self) -> dict[Role, Observation]:
        return super().observe() if len(self.log) < 2 else {}

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.log: list[str] = []

    def step(self, actions: dict[Role, str]) -> Rewards:
        if actions["a"] == "2" and self.task.id.endswith("-0"):
            raise RuntimeError("boom")
        self.log.append(actions["a"])
        return Rewards.process("score", {r: float(text) for r, text in actions.items()})


def test_an_environments_bug_in_one_fork_stays_in_its_episode(table: Any, known_as: Any) -> None:
    """And no request of that episode remains in the engine."""
    game = table(
        lambda c: "12"[c.candidate] if c.role == "a" else "3",
        env=known_as("fragile", Fragile), plan=playouts(2), patience=lambda c: 0.01 * bool(c.path),
    )  # fmt: skip
    broken, fine = game.play(2)
    assert broken.error is not None and broken.error.startswith("EnvError: RuntimeError in fragile: boom (")
    assert fine.error is None and len(fine.line()) == 4


def test_the_token_limit_counts_candidates_and_playouts(table: Any) -> None:
    """Above the limit nothing more is scored, and the episode is truncated at the next decision."""
    limits = RolloutSection(max_episode_tokens=30)
    game = table(free_cell, plan=playouts(4), limits=limits)
    (episode,) = game.play()
    assert episode.truncated and episode.error is None
    spent = 2 * len(game.engine.requests)
    assert spent >= 30 and len(episode.line()) < 5
    # A decision that was begun is finished: at most its own 4 candidates and 4 playouts in step go past the limit.
    assert spent <= 30 + 2 * (4 + 4)


# -- the play and what is played out behind it ------------------------------------------------------------------------


@pytest.mark.parametrize(("keep", "waits"), [("uniform", False), ("first", False), ("greedy", True), ("softmax", True)])
def test_the_play_waits_for_playouts_only_where_it_chooses_by_them(table: Any, keep: Any, waits: bool) -> None:
    asked: list[tuple[bool, int]] = []

    def script(call: Any) -> str:
        asked.append((bool(call.path), call.path[0] if call.path else call.decision))
        return free_cell(call)

    table(script, plan=playouts(3, keep=keep)).play()
    playouts_of_the_first = [i for i, (out, root) in enumerate(asked) if out and root == 0]
    second_decision = asked.index((False, 1))
    assert (max(playouts_of_the_first) < second_decision) == waits


def test_a_play_that_fails_leaves_no_playout_behind(table: Any) -> None:
    """The third decision fails while the playouts of the first are slow; no request remains."""
    script = lambda c: EngineError("gone.") if c.decision == 2 and not c.path else free_cell(c)  # noqa: E731
    began = time.monotonic()
    (episode,) = table(script, plan=playouts(3, keep="uniform"), patience=lambda c: 60.0 * bool(c.path)).play()
    assert episode.error == "EngineError: gone." and time.monotonic() - began < 40
    assert [t.decision for t in episode.line()] == [0, 1] and len(episode.turns) == 2, "unscored ones are left out"


def test_what_breaks_behind_the_play_is_the_episodes_error(table: Any, known_as: Any) -> None:
    game = table(
        lambda c: "12"[c.candidate] if c.role == "a" else "3",
        env=known_as("fragile", Fragile), plan=playouts(2, keep="first"), patience=lambda c: 0.01 * bool(c.path),
    )  # fmt: skip
    broken, fine = game.play(2)
    assert broken.error is not None and broken.error.startswith("EnvError: RuntimeError in fragile: boom (")
    assert fine.error is None and len(fine.line()) == 4


def test_a_playout_that_the_token_limit_cuts_says_nothing(table: Any) -> None:
    """What an unfinished game would have earned is unknown: its candidate has no outlook, and the episode says so."""

    def script(call: Any) -> str:
        return free_cell(call) if call.path or len(call.free) < 3 else call.free[call.candidate]

    plan = playouts(3, keep="first")
    (cut,) = table(script, plan=plan, limits=RolloutSection(max_episode_tokens=60)).play()
    (whole,) = table(script, plan=plan).play()
    assert cut.truncated and cut.error is None and not whole.truncated
    scored = {t.id: t.outlook for t in cut.turns if t.outlook is not None and t.decision <= 6}
    assert scored and any(t.outlook is None for t in cut.turns)
    assert {t.id: t.outlook for t in whole.turns if t.id in scored} == scored


# -- determinism ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", ["greedy", "softmax", "uniform"])
def test_two_runs_of_a_tree_are_identical(table: Any, keep: str) -> None:
    """Whatever the order of the replies."""

    def run(**settings: Any) -> list[dict[str, Any]]:
        out = []
        plan = playouts(3, 2, keep=keep)
        for episode in table(free_cell, plan=plan, seats={"O": "bot:random"}, record_playouts=True, **settings).play(2):
            data = to_json(episode)
            for part in [data, *(s for t in data["turns"] for s in t["samples"])]:
                del part["seconds"]
            out.append(data)
        return out

    assert run() == run(patience=lambda c: 0.001 * (c.seed % 3)) == run(limits=RolloutSection(concurrency=1))
