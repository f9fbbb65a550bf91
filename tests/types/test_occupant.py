"""Who plays a role: each kind has one text, which is parsed to the same occupant."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interplay.types import ByTurn, FromLeague, Occupant, Policy, Remote, Scripted, Snapshot
from interplay.types.occupant import everyone, learns, parse, parse_snapshot

NAME = st.from_regex(r"[A-Za-z][A-Za-z0-9_.-]{0,8}", fullmatch=True)
ONE = st.one_of(
    st.builds(Policy, NAME),
    st.builds(Snapshot, NAME, st.sampled_from(["start", "now", "base", "7", "120"])),
    st.builds(FromLeague, st.just("") | NAME),
    st.builds(Scripted, NAME | NAME.map(lambda n: f"{n}:6")),
)
ANY = (
    ONE
    | st.builds(ByTurn, st.lists(ONE, min_size=1, max_size=3).map(tuple), st.just(False))
    | st.builds(ByTurn, st.lists(ONE, min_size=2, max_size=3).map(tuple), st.just(True))
)


@given(ANY)
def test_the_text_of_an_occupant_names_it(who: Occupant) -> None:
    assert parse(str(who)) == who


@pytest.mark.parametrize(
    ("text", "who"),
    [
        ("player", Policy("player")),
        ("player@start", Snapshot("player")),
        ("player@120", Snapshot("player", "120")),
        ("@league", FromLeague()),
        ("player@league", FromLeague("player")),
        ("bot:alpha_beta:6", Scripted("alpha_beta:6")),
        ("draft, then revise", ByTurn((Policy("draft"), Policy("revise")), always=True)),
        ("draft, then no one", ByTurn((Policy("draft"),), always=False)),
    ],
)
def test_each_kind_has_its_text(text: str, who: Occupant) -> None:
    assert parse(text) == who and str(who) == text


def test_a_snapshot_knows_its_step() -> None:
    assert parse_snapshot("player@start").step == 0
    assert parse_snapshot("player@120").step == 120
    assert Snapshot("player", "now").is_now and not Snapshot("player").is_now


def test_only_a_policy_itself_learns() -> None:
    """Not its snapshots, not its current version as an opponent, not a bot, and not a remote model of the same name."""
    assert learns(Policy("a"), ["a"]) and not learns(Policy("a"), ["b"])
    for other in (Snapshot("a"), Snapshot("a", "now"), FromLeague("a"), Scripted("a"), Remote("a")):
        assert not learns(other, ["a"])
    both = ByTurn((Scripted("random"), Policy("a"), Policy("a")), always=True)
    assert learns(both, ["a"]) and everyone(both) == (Scripted("random"), Policy("a"))
