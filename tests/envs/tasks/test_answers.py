"""Math, inference and search: a scripted team earns the full score, cheats earn nothing, and the rules are kept."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from fractions import Fraction
from typing import Any

import pytest

from interplay.agents.bots import make_bot
from interplay.envs import make, sample_task
from interplay.envs.check import check
from interplay.envs.splits import SPLITS
from interplay.envs.tasks import word_sums
from interplay.envs.tasks.data import DataEnv
from interplay.envs.tasks.debate import DebateEnv
from interplay.envs.tasks.search import Search
from interplay.errors import ConfigError
from interplay.rewards.calculator import calculate
from interplay.types import Level, Observation, Role

TEAMS: list[tuple[str, dict[str, Any]]] = [
    ("math", {}),
    ("math", {"tool": "python"}),
    ("math", {"team": "relay"}),
    ("math", {"team": "relay", "examples": 3}),
    ("math", {"team": "single", "examples": 2}),
    ("math", {"team": "debate", "form": "hashes", "examples": 3}),
    ("math", {"form": "hashes"}),
    ("math", {"team": "debate", "agents": 4, "rounds": 3}),
    ("nli", {}),
    ("nli", {"brief": True}),
    ("nli", {"agents": 3}),
    ("search", {}),
    ("search", {"team": "single", "searches": 3}),
]
NAMES = [f"{name} {' '.join(map(str, options.values()))}".strip() for name, options in TEAMS]
Earned = dict[tuple[str, Role | None], float]


def play(env: DataEnv, say: Any) -> Earned:
    earned: Earned = defaultdict(float)
    while seen := env.observe():
        for r in env.step({role: say(role, o) for role, o in seen.items()}):
            earned[r.name, r.role] += r.value or 0.0
    for r in env.outcome():
        earned[r.name, r.role] += r.value or 0.0
    return dict(earned)


def new(name: str, index: int = 0, split: str = "train", **options: Any) -> DataEnv:
    env = make(sample_task(name, options, split, index))
    assert isinstance(env, DataEnv)
    return env


@pytest.mark.parametrize(("name", "options"), TEAMS, ids=NAMES)
def test_it_keeps_the_contract(name: str, options: dict[str, Any]) -> None:
    assert [f for f in check(name, options, episodes=6) if not f.passed] == []


@pytest.mark.parametrize(("name", "options"), TEAMS, ids=NAMES)
def test_the_scripted_team_scores_everything(name: str, options: dict[str, Any]) -> None:
    """In every split; every role earns its full published weight."""
    bot = make_bot("expert", name)
    for index in range(20):
        env = new(name, index, SPLITS[index % 3], **options)
        bot.suits(env)
        rng = random.Random(index)
        earned = play(env, lambda role, _, env=env, rng=rng: bot.act(env, role, rng))
        assert earned["correct", None] == 1.0
        rounds = env.rounds if isinstance(env, DebateEnv) and len(env.roles) != 2 else 1
        for role in env.roles:
            own = sum(v for (_, who), v in earned.items() if who == role)
            if isinstance(env, Search):  # where the question itself finds every passage, searching earns nothing
                searches, reads = bool(env._rewarded()) * (role == env.roles[0]), role == "reader"
                assert own == pytest.approx(searches + reads), role
            else:
                assert own == pytest.approx(rounds), role


def _echo(role: Role, seen: Observation) -> str:
    return "\n".join(m.content for m in seen.messages)


def _question(role: Role, seen: Observation) -> str:
    return seen.messages[-1].content


CHEATS: dict[str, Any] = {
    "echo": _echo,
    "echo of the question": _question,
    "nothing": lambda role, seen: "",
    "spaces": lambda role, seen: " \n\t ",
    "the form alone": lambda role, seen: "\\boxed{}\n####\nThe answer is\nAnswer:",
    "every answer": lambda role, seen: "\n".join(f"The answer is {n}." for n in range(300)),
    "every answer in one": lambda role, seen: "\\boxed{" + ", ".join(map(str, range(80))) + "}",
    "every label": lambda role, seen: "Answer: entailment, neutral, contradiction",
    "giant": lambda role, seen: "\\boxed{1} Answer: neutral 1 + 1 " * 40_000,
    "giant number": lambda role, seen: "\\boxed{" + "9" * 390 + "}" * 2 + "9**9**9**9",
    "tower": lambda role, seen: "9**9**9",
    "code": lambda role, seen: "__import__('os').system('true')",
    "noise": lambda role, seen: "☃ 🂡 \u202eñ\x00",
}


@pytest.mark.parametrize("cheat", CHEATS)
@pytest.mark.parametrize(("name", "options"), TEAMS, ids=NAMES)
def test_cheats_score_nothing(name: str, options: dict[str, Any], cheat: str) -> None:
    """No cheat succeeds, and only a wrong number in the right form earns something, for its form."""
    for index in range(4):
        earned = play(new(name, index, "test", **options), CHEATS[cheat])
        searched = earned.pop(("found", "searcher"), 0.0) + earned.pop(("found", "reader"), 0.0)
        assert searched == 0  # the question itself, used as a query, earns nothing either
        wrong = ("giant number", "tower", "every answer in one", "every label")  # one answer, in the form
        small = cheat in wrong or (cheat == "code" and "tool" in options)
        assert earned["correct", None] == 0
        assert sum(earned.values()) <= (0.2 * len(new(name, **options).roles) * 3 if small else 0), earned


def test_a_constant_answer_is_paid_its_form_and_nothing_more() -> None:
    """A constant answer ignores the question, so it is right only by chance."""
    runs = [play(new("math", n, "test", team="single"), lambda role, seen: "\\boxed{40}") for n in range(100)]
    assert sum(e["correct", None] for e in runs) <= 6
    assert all(e["format", "reasoner"] == 0.2 for e in runs)


def test_the_kind_of_an_answer_is_no_part_of_it() -> None:
    """A reader who has read nothing knows that the answer is a river; this must not give any F1."""
    for index in range(20):
        earned = play(new("search", index, "test"), lambda role, seen: "Answer: the river")
        assert earned["match", "reader"] == earned["correct", None] == 0


# -- word problems ----------------------------------------------------------------------------------------------------


def test_word_problems_say_what_they_compute_and_splits_are_disjoint() -> None:
    """The hidden expression gives the answer; no sum of one split is in another, whatever the names are."""
    sums: dict[str, set[str]] = {}
    for split in SPLITS:
        sums[split] = set()
        for n in range(400):
            steps = 1 + n % 4
            row = word_sums.draw(random.Random(n), split, steps, 50)
            assert calculate(row["expression"]) == Fraction(row["answer"]) and row["level"] == str(steps)
            numbers = [w for w in row["spoken"].split() if w.isdecimal()]
            assert all(number in row["question"] for number in numbers) and len(numbers) == steps + 1
            sums[split].add(row["spoken"])
    assert not sums["train"] & sums["test"] and not sums["train"] & sums["validation"]
    assert not sums["validation"] & sums["test"] and len(sums["train"]) > 350


def test_too_few_problems_say_so() -> None:
    with pytest.raises(ConfigError, match=r"env.max_steps is 1; expected at least env.min_steps"):
        new("math", min_steps=2, max_steps=1)


# -- reasoner and tool ------------------------------------------------------------------------------------------------


def row(**data: Any) -> DataEnv:
    """A problem with a known answer: 6 + 7 = 13, then halved."""
    task = sample_task("math", data)
    fixed = {"question": "Six and seven?", "answer": "13", "expression": "6 + 7", "spoken": "6 plus 7"}
    env = make(type(task)(task.id, task.env, task.seed, {**task.data, "row": fixed}))
    assert isinstance(env, DataEnv)
    return env


def test_a_pair_ends_when_it_agrees_and_prolonging_pays_nothing() -> None:
    """A reply earns the change that it makes: over all rounds, this is what the last reply is worth."""
    env = row(rounds=3)
    first = env.step({"reasoner": "I say \\boxed{12}."})
    assert [(r.name, r.level, r.value) for r in first] == [
        ("format", Level.PROCESS, 0.2), ("match", Level.AGENT, 0.0),
    ]  # fmt: skip
    tool = env.step({"tool": "6 + 7"})
    assert [(r.name, r.value) for r in tool] == [("build", 0.1), ("run", 0.1), ("match", 0.8)]
    told = env.observe()["reasoner"].messages[-1].content
    assert "You answered 12 before." in told and "6 + 7, which gives 13" in told and "boxed" not in told
    second = env.step({"reasoner": "Now \\boxed{13}."})
    assert [r.value for r in second] == [0.0, 0.8]
    assert [r.value for r in env.step({"tool": "1 / 0"})] == [0.0, -0.1, -0.8]
    assert "refused: division by zero" in env.observe()["reasoner"].messages[-1].content
    env.step({"reasoner": "\\boxed{13}"})
    env.step({"tool": "26 / 2"})
    assert env.observe() == {} and [r.value for r in env.outcome()] == [1.0]


def test_a_tool_role_that_writes_python() -> None:
    """It runs in the sandbox. The last printed line is its result; an error of the program is an outcome, not a
    crash."""
    for text, paid in (
        ("```python\nx = 6\nprint('so')\nprint(x + 7)\n```", [0.1, 0.1, 0.8]),
        ("print(12)", [0.1, 0.1, 0.0]),
        ("print(", [0.0, 0.0, 0.0]),
        ("1 / 0", [0.1, 0.0, 0.0]),
        ("x = 13", [0.1, 0.0, 0.0]),
        ("print('13 ' * 9_000)", [0.1, 0.0, 0.0]),
        ("import os; os._exit(0)", [0.1, 0.0, 0.0]),
        ("open('/etc/passwd').read(); print(13)", [0.1, 0.0, 0.0]),
        ("", [0.0, 0.0, 0.0]),
    ):
        env = row(tool="python", rounds=1)
        env.step({"reasoner": "\\boxed{13}"})
        assert "Python program" in env.observe()["tool"].messages[0].content
        assert [r.value for r in env.step({"tool": text})] == paid, text
        assert [r.value for r in env.outcome()] == [1.0]
    with pytest.raises(ConfigError, match=r"env.tool is 'python' in a relay"):
        new("math", team="relay", tool="python")


def test_a_relay_passes_on_words_and_nothing_else() -> None:
    """The tool role never sees the question; operators, or too many words, end the episode."""
    env = row(team="relay")
    env.step({"reasoner": "6 plus\n7"})
    assert [m.content for m in env.observe()["tool"].messages][1:] == ["6 plus 7"]
    assert [r.value for r in env.step({"tool": "6 + 7"})] == [0.1, 0.1, 0.8]
    assert {(r.name, r.role): r.value for r in env.outcome()} == {("match", "reasoner"): 0.8, ("correct", None): 1.0}
    for bad in ("6 + 7", "word " * 30, ""):
        env = row(team="relay")
        assert [r.value for r in env.step({"reasoner": bad})] == [0.0] and env.observe() == {}
    env = row(team="relay")
    assert [r.value for r in env.step({"reasoner": "add them"})] == [0.0] and env.observe()  # heard, but no two numbers


def test_a_script_that_a_calculator_cannot_follow_is_refused() -> None:
    task = sample_task("math", {})
    env = make(type(task)(task.id, task.env, task.seed, {**task.data, "row": {"question": "q", "answer": "2n"}}))
    assert isinstance(env, DataEnv)
    env.step({"reasoner": env.script("reasoner")})
    with pytest.raises(ConfigError, match="cannot compute '2n' with a calculator"):
        env.script("tool")
    with pytest.raises(ConfigError, match="is not a task over a data set"):
        make_bot("expert", "tictactoe").suits(make(sample_task("tictactoe", {})))


# -- debate -----------------------------------------------------------------------------------------------------------


def test_a_debate_by_hand() -> None:
    """Each reply is rewarded by itself; peers' answers are shown without marks; the vote compares meanings, not
    texts."""
    env = row(team="debate", agents=3, rounds=2)
    earned = env.step({"agent1": "\\boxed{13}", "agent2": "The answer is 12.", "agent3": "no idea"})
    assert {(r.name, r.role): r.value for r in earned} == {
        ("format", "agent1"): 0.2, ("format", "agent2"): 0.2, ("format", "agent3"): 0.0,
        ("match", "agent1"): 0.8, ("match", "agent2"): 0.0, ("match", "agent3"): 0.0,
    }  # fmt: skip
    seen = env.observe()["agent2"]
    told = seen.messages[-1].content
    assert seen.phase == "round 2" and "You answered 12" in told and "agent1 answered 13" in told
    assert "agent3 answered nothing, and said: no idea" in told and "boxed" not in told
    env.step({"agent1": "\\boxed{26/2}", "agent2": "\\boxed{13.0}", "agent3": "\\boxed{12}"})
    assert env.observe() == {} and [r.value for r in env.outcome()] == [1.0]


@pytest.mark.parametrize(
    ("answers", "value"),
    [
        (("12", "13", "12"), 0.0), (("13", "12", ""), 1.0), (("12", "13", ""), 0.0), (("", "", "13"), 1.0),
        (("", "", ""), 0.0), (("1", "2", "13"), 0.0),
    ],
)  # fmt: skip
def test_the_vote(answers: tuple[str, ...], value: float) -> None:
    """Most votes win; in a tie, the answer of the earliest agent; an agent without an answer has no vote."""
    env = row(team="debate", agents=3, rounds=1)
    env.step({f"agent{n + 1}": f"\\boxed{{{a}}}" for n, a in enumerate(answers)})
    assert [r.value for r in env.outcome()] == [value]


def test_brief_inference_lists_its_labels() -> None:
    env = new("nli", brief=True)
    assert env.observe()["judge"].legal == ("entailment", "neutral", "contradiction")
    assert ("illegal", 0.0) in [(r.name, r.value) for r in env.step({"judge": "Answer: neutral"})]


# -- search -----------------------------------------------------------------------------------------------------------


def test_searches_are_paid_for_what_they_bring_up_first() -> None:
    """The question finds the person, so only the town earns; finding it again earns nothing; the reader is rewarded by
    F1."""
    env = new("search", searches=4, results=1)
    person, town = env.row["gold"]
    assert [r.value for r in env.step({"searcher": env.row["question"]})] == [0.0]
    assert person["text"] in env.observe()["searcher"].messages[-1].content
    assert [r.value for r in env.step({"searcher": person["title"]})] == [0.0]
    assert [r.value for r in env.step({"searcher": town["text"]})] == [1.0]
    assert [r.value for r in env.step({"searcher": town["title"]})] == [0.0]
    seen = env.observe()
    assert list(seen) == ["reader"] and town["text"] in seen["reader"].messages[-1].content
    answer = env.row["answers"][0]
    assert [r.value for r in env.step({"reader": f"It is so.\nAnswer: {answer} valley"})] == pytest.approx(
        [0.2, 0.8 * 2 / 3]
    )
    assert [r.value for r in env.outcome()] == [0.0]


def test_copying_the_question_or_common_words_earn_nothing() -> None:
    """The question finds the first passage, which is not counted. Common words are in many passages and find none.
    Where the question finds every passage, the search is not scored."""
    for index in range(60):
        env = new("search", index, results=3)
        assert isinstance(env, Search) and len(env._rewarded()) == 1
        assert [r.value for r in env.step({"searcher": env.row["question"]})] == [0.0]
        found = env.found
        assert [r.value for r in env.step({"searcher": "town river market"})] == [0.0] and env.found == found
        (everything,) = new("search", index, results=8).step({"searcher": env.row["question"]})
        assert everything.value is None


def test_done_ends_the_search() -> None:
    env = new("search", searches=5)
    assert not env.step({"searcher": "Done."}) and list(env.observe()) == ["reader"]
    assert "Nothing was found." in env.observe()["reader"].messages[-1].content
    env.step({"reader": "Answer: a\nAnswer: b"})
    assert env.state().splitlines()[-2] == "answered: None"


@pytest.mark.parametrize("largest", [50, 200])
def test_no_answer_of_a_word_problem_is_a_good_guess(largest: int) -> None:
    """Found with the cheats: 2 was the answer of every thirtieth problem, so a constant reply was rewarded."""
    rng = random.Random(0)
    drawn = Counter(word_sums.draw(rng, "test", rng.randint(1, 3), largest)["answer"] for _ in range(12_000))
    (_, often), *_ = drawn.most_common(1)
    assert often / 12_000 < 0.0105 + 3 * (0.01 / 12_000) ** 0.5
