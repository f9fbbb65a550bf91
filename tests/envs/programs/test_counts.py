"""A bug of a program is told from crashes that a policy causes by how many episodes of a step it ends."""

from __future__ import annotations

import pytest

from interplay.envs.programs.counts import CRASHED, crash_line, refuse_bug
from interplay.errors import GuardError
from interplay.types import Episode, Rewards, Task


def step(*crashes: str) -> list[Episode]:
    """Ten episodes. Half of the crashes were blamed on the policy, half on the machinery."""
    episodes = [Episode(str(n), Task(str(n), "program", n), 0, {}) for n in range(10)]
    for n, (episode, signature) in enumerate(zip(episodes, crashes, strict=False)):
        if n % 2:
            episode.final_state = f"planner: x\n{signature}: words of it\n{crash_line(signature)}"
            episode.rewards = Rewards.team(CRASHED, -0.1)
        else:
            episode.error = f"EnvError: the program crashed: {signature}: words of it {crash_line(signature)}"
    return episodes


def test_only_the_same_crash_in_more_than_a_fifth_of_the_episodes_is_a_bug() -> None:
    bug = "KeyError at team.py:7"
    refuse_bug(step(bug, bug), 4)  # a fifth
    refuse_bug(step(*(f"KeyError at team.py:{line}" for line in range(10))), 4)  # at different lines
    with pytest.raises(GuardError, match=r"3 of the 10 episodes of step 4 crashed with KeyError at team\.py:7 "):
        refuse_bug(step(bug, bug, bug), 4)


def test_a_bug_is_told_with_its_words() -> None:
    """They often say what to do, for example when a model's name is no role, or which limit was exceeded."""
    with pytest.raises(GuardError, match=r"with KeyError at team\.py:7 \(one of them: words of it\); this is a bug"):
        refuse_bug(step(*["KeyError at team.py:7"] * 3), 4)
    blamed = step(*["KeyError at team.py:7"] * 8)[1::2]  # the words of these are only in the final state
    with pytest.raises(GuardError, match=r"\(one of them: words of it\)"):
        refuse_bug(blamed, 4)


def test_what_a_policy_says_is_no_crash() -> None:
    """Otherwise a policy could stop the run."""
    episodes = step()
    for episode in episodes:
        episode.final_state = f"planner: x\n{crash_line('KeyError at team.py:7')}"
        episode.rewards = Rewards.team("score", 1.0)
    refuse_bug(episodes, 4)


@pytest.mark.parametrize(
    ("kind", "remedy"),
    [("Timeout", r"env\.program\.seconds"), ("LimitExceeded", r"memory_mb"), ("UnreadableResult", r"Return text")],
)
def test_a_crash_without_a_line_in_the_program_says_what_to_change(kind: str, remedy: str) -> None:
    with pytest.raises(GuardError, match=rf"crashed with {kind} at an unknown place .*; it.*{remedy}"):
        refuse_bug(step(*[f"{kind} at an unknown place"] * 3), 4)
