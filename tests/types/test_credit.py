"""Credit beside the samples: given to whole turns, read back by turn, and withdrawn."""

from __future__ import annotations

from interplay.types import Credit, Keys, Observation, Sample, Turn

CALL, SAID = (
    Sample("a", (1,), (2,), (0.0,), (0,), "@ask"),
    Sample("a.1", (1, 2, 3), (4, 5), (0.0,) * 2, (0,) * 2, "yes"),
)
TURN = Turn("a.1", None, Keys("t", 0, "t#0", 0, "X", "", "", ""), "player", "yes", Observation(()), (CALL, SAID))
BOT = Turn("b", None, TURN.keys, "bot:first", "1", Observation(()))


def test_all_model_calls_of_a_turn_share_its_advantage() -> None:
    given = Credit()
    given.give(TURN, 0.5)
    given.give(BOT, 9.0)
    assert given.advantages == {"a": 0.5, "a.1": 0.5}
    assert given.advantage(TURN) == 0.5 and given.advantage(BOT) is None


def test_zero_is_an_advantage_and_none_is_not() -> None:
    """A sample with an advantage of 0 counts in means; a sample without one is not trained."""
    given = Credit()
    assert given.advantage(TURN) is None
    given.give(TURN, 0.0)
    assert given.advantage(TURN) == 0.0
    given.withdraw([TURN, BOT])
    assert given.advantages == {} and given.advantage(TURN) is None


def test_of_advantages_by_token_the_largest_in_size_stands_for_the_turn() -> None:
    assert Credit(advantages={"a": (9.0,), "a.1": (1.0, -2.0)}).advantage(TURN) == -2.0


def test_a_turns_value_and_target_are_those_of_its_action_at_the_prompts_end() -> None:
    given = Credit(values={"a": (9.0,), "a.1": (1.0, 2.0)}, targets={"a": (9.0,), "a.1": (3.0, 4.0)})
    assert (given.value(TURN), given.target(TURN)) == (1.0, 3.0)
    assert (given.value(BOT), given.target(BOT)) == (None, None)
    assert (Credit().value(TURN), Credit().target(TURN)) == (None, None)
