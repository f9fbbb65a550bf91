"""The pages in a real browser (Debian's chromium): every page draws, updates itself, and asks nobody else."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from written import (
    PICTURE,
    WHOLE,
    add_step,
    calling,
    group_episodes,
    illegal,
    played_out,
    played_out_at_once,
    recipe,
    turn,
    write_run,
)

from interplay.evaluation.ablation import Change
from interplay.evaluation.budget import Matched, TaskBudget, Way
from interplay.evaluation.intervals import Estimate
from interplay.evaluation.played import Played
from interplay.evaluation.suite import Report
from interplay.types import Level, Policy, Reward, Rewards, Scripted
from interplay.viewer import server

api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: apt install chromium")
LEAGUE = {
    "league/score/player/player@start": 0.7, "league/score/player/player@5": 0.4, "league/chance/player/player@5": 0.6,
    "league/games/player/player@start": 20.0, "league/size": 2.0, "league/rating/player": 0.5,
    "player/gap_mean": 3.4e-7,
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("viewer") / "runs"
    write_run(folder / "tree", 3)
    add_step(folder / "tree", 4, more=[illegal(90)])
    write_run(folder / "groups", 3, WHOLE, league={}, matchups=[{"share": 0.5, "one": "player", "others": "@league"}])
    judge = {"kind": "pairwise", "who": "gold:win", "against": "group", "audit": {"gold": "gold:win"}}
    write_run(folder / "judged", 1, WHOLE, judges={"taste": judge})
    odd = group_episodes(70, (1.0, -1.0))
    for episode, taste in zip(odd, (-0.5, 0.5), strict=True):
        episode.rewards += Rewards((Reward("taste", Level.AGENT, "X", taste),))
    add_step(folder / "judged", 2, WHOLE, more=odd)
    metrics = folder / "groups" / "metrics.jsonl"
    more = ", ".join(f'"{name}": {value}' for name, value in LEAGUE.items())
    metrics.write_text(metrics.read_text().replace("}\n", f", {more}}}\n"))
    (folder / "groups" / "eval").mkdir()
    (folder / "groups" / "eval" / "eval.json").write_text(json.dumps(measured().to_json()))
    return folder


def measured() -> Report:
    """An evaluation with each kind of ablation."""
    half = Estimate(0.5, 0.25, 0.75)
    change = Change("X = base", "team", {}, 8, half, half, Estimate(0.125, -0.05, 0.3), None)
    ways = [Way("team", half, half, 40.0, 40.0, 1.0, None), Way("one agent, longer", half, half, 40.0, 31.5, 1.0, half)]
    budget = Matched("X", "player", ways, [TaskBudget("task-1", 40, 31, 40)])
    return Report("r", "tictactoe", {}, "test", [0], 8, 1, 1.0, False, [], [], [change], [], budget)


@pytest.fixture(scope="module")
def served(runs: Path) -> Iterator[str]:
    with viewer(runs) as url:
        yield url


@contextmanager
def viewer(runs: Path) -> Iterator[str]:
    """The viewer in a process of its own; yields its URL."""
    command = [sys.executable, "-m", "interplay", "view", str(runs), "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    yield process.stdout.readline().strip()
    process.terminate()
    process.wait(timeout=300)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with api.sync_playwright() as driver:
        made = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=180_000)
        yield made
        made.close()


class Seen:
    """A page, with what went wrong on it and where it asked."""

    def __init__(self, browser: Any, url: str) -> None:
        self.context = browser.new_context(viewport={"width": 1400, "height": 900})
        self.page = self.context.new_page()
        self.page.set_default_timeout(90_000)
        self.wrong: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda m: self.wrong.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda e: self.wrong.append(str(e)))
        self.page.on("request", lambda r: self.asked.append(r.url))
        self.home = url.partition("?")[0]
        self.page.goto(url)
        self.page.wait_for_selector("main")

    def show(self, place: str, wait: str) -> str:
        """Go to a place and return its text once `wait` is on it."""
        self.page.goto(f"{self.home}#{place}")
        self.page.wait_for_selector(wait, timeout=90_000)
        return str(self.page.inner_text("main"))


@pytest.fixture
def seen(browser: Any, served: str) -> Iterator[Seen]:
    made = Seen(browser, served)
    yield made
    assert made.wrong == []
    assert [url for url in made.asked if not url.startswith((made.home, "data:"))] == []
    made.context.close()


EPISODE = "/run/tree/episode?step=1&id=task-2%230"


def test_every_page_draws(seen: Seen) -> None:
    listed = seen.show("/", "table.list")
    assert "at_grpo" in listed and "stopped" in listed, "nothing trains these runs"
    assert "entropy" in seen.show("/run/tree", ".chart canvas")
    assert "task-9#0" in seen.show("/run/tree/episodes", "table.episodes")
    talk = seen.show(EPISODE, ".turn")
    assert "a secret of X" in talk and "4 candidates" in talk and "whole board" not in talk
    seen.show(EPISODE + "&view=tree", ".tree .node.kept")
    assert seen.page.locator(".tree .node").count() == 8
    seen.show(EPISODE + "&view=tokens&turn=task-2%230%2F0X1", ".tokens span")
    seen.page.hover(".tokens span >> nth=1")
    assert re.search(r"log-prob\s*−1.5", seen.page.inner_text(".detail"))
    for measure, number in (("entropy", "0.25"), ("gap", "−2.0e−7")):
        seen.page.select_option(".tools select", measure)
        seen.page.hover(".tokens span >> nth=0")
        seen.page.hover(".tokens span >> nth=1")
        assert re.search(rf"{measure}\s*{number}", seen.page.inner_text(".detail"))
        colours = [seen.page.eval_on_selector(f".tokens span >> nth={n}", "e => e.style.background") for n in (0, 1)]
        assert colours[0] != colours[1]  # each token by its own number
    assert seen.page.locator("table.group tbody tr").count() == 0
    assert "standard deviation" in seen.show(EPISODE + "&view=group", "table.group")
    assert seen.page.locator("table.group tbody tr").count() == 4
    assert "player@start" in seen.show("/run/groups/league", ".matrix")
    ratings = seen.page.locator(".chart:has-text('400 points are odds of ten to one') canvas")
    ratings.wait_for()
    assert "train.steps" in seen.show("/run/tree/recipe", "table.pairs")
    assert "Which reply is better?" in seen.show("/run/tree/judge", ".labelling")
    judged = seen.show("/run/judged/judge", "text=orders 0 of 1 pairs as win does, 1 the other way")
    assert "judge −0.5 · gold 1 (preferred)" in judged and "judge 0.5 (preferred) · gold −1" in judged
    assert "task-2" in seen.show("/run/tree/task?id=task-2", "table.episodes")
    differs = seen.show("/compare?runs=tree,groups", "table.list")
    assert "algorithm.name" in differs and "train.steps" not in differs


def test_the_tree_shows_the_return_of_every_candidate_and_its_playouts(seen: Seen, runs: Path) -> None:
    write_run(runs / "outlooks", 1)
    add_step(runs / "outlooks", 2, more=[played_out(60)])
    seen.show("/", "text=outlooks")
    first = seen.show("/run/outlooks/episode?step=2&id=task-60%230&view=tree", ".tree .node.kept")
    assert seen.page.locator(".tree .node text.n").all_text_contents() == ["1", "0", "−1", "0.5"] * 2
    assert "Decision 1, X, candidate 1 kept" in first and "return 1 A" in first.replace("\n", " ")
    plays = seen.page.locator(".playouts li")
    assert "2 playouts" in first
    assert [" ".join(told.split()) for told in plays.all_inner_texts()] == ["O left win X +1", "O right win X +0.5"]
    seen.page.click(".tree .node >> nth=1")
    seen.page.wait_for_selector("h3:has-text('Decision 1, X, candidate 2')")
    assert [" ".join(told.split()) for told in plays.all_inner_texts()] == ["O middle win X 0"]
    seen.page.click(".tree .node >> nth=2")
    seen.page.wait_for_selector("h3:has-text('Decision 1, X, candidate 3')")
    assert plays.count() == 0 and "return −1" in seen.page.inner_text(".candidate")
    seen.show(EPISODE + "&view=tree", "text=Playouts are recorded with records.playouts = true.")


def test_roles_that_act_at_once_have_their_own_playouts(seen: Seen, runs: Path) -> None:
    write_run(runs / "at-once", 1)
    add_step(runs / "at-once", 2, more=[played_out_at_once(61)])
    seen.show("/", "text=at-once")
    seen.show("/run/at-once/episode?step=2&id=task-61%230&view=tree", ".tree .node.kept")
    for node, told in enumerate(("after X0", "after X1", "", "after O0", "after O1", "")):
        seen.page.click(f".tree .node >> nth={node}")
        seen.page.wait_for_selector(f"h3:has-text('{'XO'[node // 3]}, candidate {node % 3 + 1}')")
        found = [" ".join(play.split()) for play in seen.page.locator(".playouts li").all_inner_texts()]
        assert found == ([f"O {told} win X +1"] if told else [])
        twin = seen.page.locator("text=The same reply as candidate 2, whose playouts count for both.")
        assert twin.count() == (0 if told else 1)


def test_the_evaluation_shows_every_ablation_with_its_interval(seen: Seen) -> None:
    told = seen.show("/run/groups/evaluation", "table.budget")
    assert "one agent, longer\t50.0%\t40\t31.5\t1\t+50 +25 to +75" in told
    assert "X = base\tteam\t50.0%\t+12.5 −5 to +30\t8" in told


def test_a_run_that_measured_nothing_says_so(seen: Seen, runs: Path) -> None:
    run = write_run(runs / "unmeasured", 1, WHOLE)
    (run / "report.json").write_text(json.dumps({"results": {"before": [], "after": []}, "exploitability": {}}))
    seen.show("/", "text=unmeasured")
    assert "Before and after" not in seen.show("/run/unmeasured/evaluation", "text=No evaluation yet")


def test_the_games_of_an_evaluation_begin_with_the_worst_and_can_begin_with_the_best(seen: Seen, runs: Path) -> None:
    run = write_run(runs / "measured", 1, WHOLE)
    played = group_episodes(88, (0.5, -1.0, 1.0))
    for episode in played:
        episode.seats = {"X": Policy("player"), "O": Scripted("random")}
    Played(run / "eval" / "played.jsonl").put("chunk", played)
    seen.show("/", "text=measured")
    seen.show("/run/measured/evaluation", "table.episodes")
    names = seen.page.locator("table.episodes tbody a")
    assert names.all_inner_texts() == ["task-88#1", "task-88#0", "task-88#2"]
    seen.page.select_option("label:has-text('order') select", "best")
    seen.page.wait_for_selector("table.episodes tbody tr:first-child >> text=task-88#2")
    assert names.all_inner_texts() == ["task-88#2", "task-88#0", "task-88#1"] and "sort=best" in seen.page.url
    names.nth(2).click()
    seen.page.wait_for_selector("text=reply 1")  # its transcript


def test_the_labels_of_a_chart_are_not_cut(seen: Seen) -> None:
    seen.show("/run/groups?find=gap_mean", ".chart canvas")
    drawn = """c => { const all = c.getContext("2d").getImageData(0, 0, c.width, c.height).data, left = [];
        for (let y = 0; y < c.height; y++) left.push(all[4 * y * c.width + 3]);
        return [Math.max(...left), all.some(v => v > 0)]; }"""
    edge, something = seen.page.eval_on_selector(".chart canvas", drawn)
    assert something and edge == 0


CURVE = """(c) => { const all = c.getContext("2d").getImageData(0, 0, c.width, c.height).data; let coloured = 0;
    for (let i = 0; i < all.length; i += 4) {
        const [red, green, blue, opaque] = all.slice(i, i + 4);
        if (opaque > 200 && Math.max(red, green, blue) - Math.min(red, green, blue) > 60) coloured++; }
    return coloured; }"""  # pixels that are not grey, as the axes are


def test_the_page_of_a_run_draws_throughput_memory_and_staleness(seen: Seen, runs: Path) -> None:
    run = write_run(runs / "streamed", 3, WHOLE)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        at = row["step"]
        row |= {
            "tokens_per_second": 100.0 * at, "memory_gib": 2.5 + at, "stream/staleness": 0.25 * at,
            "stream/age/0": 1 - 0.1 * at, "stream/age/1": 0.1 * at,
        }  # fmt: skip
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    seen.show("/", "text=streamed")
    seen.show("/run/streamed", ".chart canvas")
    for group, title, told in (
        ("Throughput", "tokens_per_second", "tokens_per_second 300"),
        ("Throughput", "memory_gib", "memory_gib 5.5"),
        ("Stream", "staleness", "staleness 0.75"),
        ("Stream", "share of tokens by age in steps", "0 0.7 1 0.3"),
    ):
        chart = seen.page.locator(f"h2:text-is('{group}') + .charts > .chart:has(figcaption:text-is('{title}'))")
        chart.locator("canvas").wait_for()
        assert " ".join(chart.locator(".legend").inner_text().split()) == told  # the newest values
        assert chart.locator("canvas").evaluate(CURVE) > 50
    chart.locator(".u-over").hover(position={"x": 2, "y": 60})
    seen.page.wait_for_function(
        "() => [...document.querySelectorAll('.legend em')].every(e => e.innerText === 'step 1')"
    )
    assert " ".join(chart.locator(".legend").inner_text().split()) == "0 0.9 1 0.1 step 1"


def test_a_reward_that_comes_after_every_action_is_shown_as_one_sum(seen: Seen, runs: Path) -> None:
    write_run(runs / "repeated", 1)
    (episode,) = group_episodes(80, (1.0,))
    episode.rewards += Rewards(tuple(Reward("nearer", Level.TEAM, None, 0.25) for _ in range(6)))
    add_step(runs / "repeated", 2, WHOLE, more=[episode])
    seen.show("/", "text=repeated")
    seen.show("/run/repeated/episode?step=2&id=task-80%230", ".turn")
    assert seen.page.locator(".reward:has-text('nearer')").all_inner_texts() == ["nearer +1.5"] * 2  # head and end


def test_each_metric_of_a_judge_is_explained_and_counts_have_their_own_chart(seen: Seen, runs: Path) -> None:
    run = write_run(
        runs / "learned", 2, WHOLE, judges={"taste": {"kind": "pairwise", "who": "gold:win", "against": "group"}}
    )
    metrics = run / "metrics.jsonl"
    more = '"judge/taste/labels": 8, "judge/taste/proxy": 0.5, "judge/taste/rang": 0'
    metrics.write_text(metrics.read_text().replace("}\n", f", {more}}}\n"))
    seen.show("/", "text=learned")
    seen.show("/run/learned/judge", ".chart canvas")
    charts = seen.page.locator(".chart").all_inner_texts()
    assert len(charts) == 2
    shares, counts = charts
    assert "proxy: mean reward by the judge; rang:" in shares and "coverage:" not in shares
    assert "labels: comparisons" in counts and "proxy" not in counts


def test_tokens_begin_with_a_trained_turn_and_their_colour_is_in_the_address(seen: Seen) -> None:
    seen.show("/run/tree/episode?step=4&id=task-90%230&view=tokens", ".tokens span")  # its first turn was not trained
    assert seen.page.input_value(".tools select") == "advantage"
    seen.page.select_option(".tools select", "entropy")
    seen.page.wait_for_url("**&colour=entropy")
    seen.page.reload()
    seen.page.wait_for_selector(".tokens span")
    assert seen.page.input_value(".tools select") == "entropy"


def test_runs_that_differ_only_in_their_seed_are_one_curve_with_an_interval(seen: Seen, runs: Path) -> None:
    for seed, rise in ((0, 1.0), (1, 2.0)):
        run = write_run(runs / f"seed-{seed}", 3, WHOLE, seed=seed)
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        text = "".join(json.dumps({**row, "reward": rise * row["step"]}) + "\n" for row in rows)
        (run / "metrics.jsonl").write_text(text)
    seen.show("/", "text=seed-1")
    seen.show("/compare?runs=seed-0,seed-1,tree", "table.latest")
    seen.page.wait_for_function("() => document.querySelector('table.latest').innerText.includes('seed-1\\t6\\t')")
    apart = seen.page.inner_text("table.latest")
    assert "seed-0\t3\t" in apart and "seed-1\t6\t" in apart and "±" not in apart
    seen.page.click("text=seeds together")
    seen.page.wait_for_selector("table.latest >> text=seed-0 and 1 more")
    # 12.71 times the standard deviation of 3 and 6, divided by the square root of 2
    assert "seed-0 and 1 more\t4.5 ± 19\t" in seen.page.inner_text("table.latest")
    assert seen.page.locator("table.latest tbody tr").count() == 2 and "seeds=together" in seen.page.url
    seen.page.wait_for_selector(".chart canvas")


def test_an_advantage_can_be_asked_where_it_comes_from(seen: Seen) -> None:
    seen.show(EPISODE, ".turn")
    seen.page.click(".advantage >> nth=0")
    seen.page.wait_for_selector(".explain .steps")
    told = seen.page.inner_text(".explain")
    assert "The formula with these numbers gives the recorded advantage" in told
    assert "0.875" in told and "0.125" in told  # 1 − the mean of 1, 0, −1 and 0.5
    assert "About at_grpo" in told  # as the recipe names it
    assert "explain=task-2" in seen.page.url  # a link to this view can be sent to somebody
    seen.page.keyboard.press("Escape")
    seen.page.wait_for_selector(".explain", state="detached")


def test_a_single_run_is_opened_at_once_and_the_list_is_still_there(browser: Any, tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "alone", 2)
    with viewer(tmp_path / "runs" / "alone") as url:
        seen = Seen(browser, url)
        api.expect(seen.page).to_have_url(re.compile("#/run/alone$"), timeout=90_000)
        seen.page.wait_for_selector(".chart canvas")
        assert seen.show("/", "table.list").startswith("Runs\n\n1 run.\n")
        seen.context.close()


def test_hostile_text_is_shown_as_text(seen: Seen) -> None:
    text = seen.show("/run/tree/episode?step=4&id=task-90%230", ".turn")
    assert "<img src=x onerror=alert(1)>" in text and "\u202e" not in text
    assert seen.page.locator("img[src=x]").count() == 0
    assert seen.page.locator(f"img.picture[src$='{PICTURE.digest}']").count() == 1


def test_every_answer_of_a_tool_stands_below_its_call_and_a_sound_has_its_length(seen: Seen, runs: Path) -> None:
    write_run(runs / "calls", 1, WHOLE)
    add_step(runs / "calls", 2, WHOLE, more=[calling(85)])
    seen.show("/", "text=calls")
    seen.show("/run/calls/episode?step=2&id=task-85%230", ".turn")
    said = seen.page.locator(".turn >> nth=0").locator(".message:not(.user), .said").all_inner_texts()
    assert [" ".join(text.split()) for text in said] == [
        "calls add+ls add(1, 1) ls()", "tool 2", "tool a.txt", "calls add add(2, 3)", "tool five", "ends with 5",
    ]  # fmt: skip
    seen.page.wait_for_function("() => document.querySelector('audio').duration === 1.5")


def test_no_page_is_wider_than_a_narrow_window(browser: Any, served: str) -> None:
    """Wide tables and trees scroll in their own frame, so that the rest of the page is not cut off."""
    seen = Seen(browser, served)
    seen.page.set_viewport_size({"width": 400, "height": 800})
    explained = EPISODE + "&explain=task-2%230%2F0X0"
    for place, wait in (
        ("/", "table.list"), ("/run/tree", ".chart canvas"), ("/run/tree/episodes", "table.episodes"),
        ("/run/tree/recipe", "table.pairs"), (EPISODE, ".turn"), (explained, ".explain .steps"),
        (explained + "&view=tree", ".explain .steps"), (EPISODE + "&view=group", "table.group"),
        ("/run/groups/league", ".charts.wide canvas"), ("/run/groups/evaluation", "table.budget"),
        ("/run/judged/judge", ".chip"), ("/compare?runs=tree,groups", "table.latest"),
    ):  # fmt: skip
        seen.show(place, wait)
        assert seen.page.evaluate("() => document.documentElement.scrollWidth") <= 400, place
    seen.show("/run/groups/recipe", "table.pairs")
    api.expect(seen.page.locator("nav.tabs a.here")).to_be_in_viewport(ratio=1)
    seen.context.close()


def test_filters_keys_and_themes_work(seen: Seen) -> None:
    seen.show("/run/tree/episodes", "table.episodes")
    seen.page.keyboard.press("/")
    seen.page.keyboard.type("task-90#0")
    seen.page.wait_for_function(  # the table is drawn again after every letter
        """() => {
            const rows = document.querySelectorAll("table.episodes tbody tr");
            return rows.length === 1 && rows[0].innerText.includes("task-90#0");
        }"""
    )
    seen.page.keyboard.press("Escape")
    seen.show(EPISODE, ".turn")
    seen.page.keyboard.press("j")
    seen.page.wait_for_selector("h2:has-text('task-3#0')")
    seen.page.keyboard.press("2")
    seen.page.wait_for_selector(".tree .node")
    before = seen.page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    seen.page.keyboard.press("t")
    seen.page.wait_for_selector("html[data-theme=dark]")
    assert seen.page.evaluate("getComputedStyle(document.documentElement).backgroundColor") != before


def test_what_a_run_writes_shows_up_by_itself(seen: Seen, runs: Path) -> None:
    """The server looks more often than every two seconds, and the page that is open draws what it found."""
    run = write_run(runs / "grows", 1)
    seen.show("/", "text=grows")
    seen.show("/run/grows/episodes", "table.episodes")
    add_step(run, 77)
    seen.page.wait_for_selector("text=task-154#0", timeout=90_000)
    assert server.POLL < 2


def test_a_run_of_any_name_can_be_opened_and_one_that_was_removed_says_so(browser: Any, tmp_path: Path) -> None:
    odd = write_run(tmp_path / "runs" / "50% of what? #1, <b>&amp;", 1)
    write_run(tmp_path / "runs" / "a,b", 1, WHOLE)
    with viewer(tmp_path / "runs") as url:
        seen = Seen(browser, url)
        seen.page.click("text=50% of what? #1, <b>&amp;")
        seen.page.wait_for_selector(".chart canvas")
        seen.page.click("nav.tabs >> text=Episodes")
        seen.page.click("table.episodes a >> nth=0")
        seen.page.wait_for_selector(".turn")
        seen.page.keyboard.press("g")
        boxes = seen.page.locator("table.list input[type=checkbox]")
        boxes.nth(1).wait_for()  # the list shows both runs
        for box in boxes.all():
            box.check()
        seen.page.wait_for_selector("text=Compare 2")
        seen.page.keyboard.press("c")
        seen.page.wait_for_selector("text=algorithm.name")
        assert seen.wrong == []
        seen.page.goto(f"{seen.home}#/run/50%")  # a % that begins no code
        seen.page.wait_for_selector("text=there is no run '50%'")
        seen.show("/run/a%2Cb", ".chart canvas")
        shutil.rmtree(tmp_path / "runs" / "a,b")
        seen.page.wait_for_selector("text=there is no run 'a,b'")
        odd.joinpath("run.json").write_text('{"recipe": "none"}')
        seen.show("/", "table.list")
        seen.page.wait_for_selector("text=damaged files")
        seen.context.close()


def test_verdicts_of_judges_are_paged_and_stand_below_their_episode(seen: Seen, runs: Path) -> None:
    judge = {"kind": "pairwise", "who": "player", "against": "group"}
    run = write_run(runs / "asked", 1, WHOLE, judges={"taste": judge})
    played = group_episodes(95, (1.0,) * 14)
    for episode in played:
        name = episode.id.replace("#", "-")
        answers = [turn(episode.id, 0, "judge", f"{name}: {said}", k) for k, said in enumerate(("A", "I cannot say"))]
        episode.judged = [replace(a, keys=replace(a.keys, phase="taste")) for a in answers]
    add_step(run, 2, WHOLE, more=played)
    seen.show("/", "text=asked")
    newest = seen.show("/run/asked/judge", ".pager")
    assert "Episodes 1 to 10 of 22, the newest first." in newest
    assert "task-95-13: A" in newest and "task-95-2: A" not in newest
    seen.page.click(".pager button >> nth=1")
    seen.page.wait_for_selector("text=task-95-2: A")
    assert "page 2 of 3" in seen.page.inner_text(".pager") and "page=1" in seen.page.url
    seen.page.click("article.judge a:text-is('task-95#2')")
    seen.page.wait_for_selector("h2:has-text('task-95#2')")
    (article,) = seen.page.locator("article.judge").all_inner_texts()
    assert "as shown, 1 for the first\ntask-95-2: A" in article
    assert "in the other order, could not be parsed\ntask-95-2: I cannot say" in article
    seen.page.click("text=Those with this one are in task-95#0, task-95#1. >> a:text-is('task-95#1')")
    seen.page.wait_for_selector("text=task-95-1: A")


def test_a_label_by_a_person_is_kept(seen: Seen, runs: Path) -> None:
    seen.show("/run/tree/judge", ".labelling")
    seen.page.click("text=A is better")
    seen.page.wait_for_selector("text=1 labelled")
    assert (runs / "tree" / "labels.jsonl").read_text().count('"chosen":') == 1


def test_an_exported_page_needs_no_server(browser: Any, runs: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    write_run(tmp_path / "calls", 1, WHOLE)
    add_step(tmp_path / "calls", 2, WHOLE, more=[calling(85)])
    command = [
        sys.executable,
        "-m",
        "interplay",
        "view",
        str(runs / "tree"),
        str(runs / "groups"),
        str(runs / "judged"),
        str(tmp_path / "calls"),
        "--export",
        str(page),
    ]
    subprocess.run(command, check=True, capture_output=True)
    seen = Seen(browser, page.as_uri())
    listed = seen.show("/", "table.list")
    assert "at_grpo" in listed and "stopped" in listed, "nothing trains these runs"
    seen.show("/run/tree", ".chart canvas")
    seen.show("/run/tree/episodes", "table.episodes")
    seen.page.click("table.episodes a >> nth=0")
    seen.page.wait_for_selector(".turn")
    seen.show(EPISODE + "&view=tree&explain=task-2%230%2F0X0", ".explain .steps")
    seen.show(EPISODE + "&view=tokens", ".tokens span")
    seen.show("/run/groups/league", ".matrix")
    assert "Which reply is better?" not in seen.show("/run/judged/judge", "text=1 the other way")
    seen.show("/run/calls/episode?step=2&id=task-85%230", ".turn audio")
    seen.page.wait_for_function("() => document.querySelector('audio').duration === 1.5")
    assert seen.wrong == []
    assert [url for url in seen.asked if not url.startswith(("file:", "data:"))] == []
    seen.context.close()


@pytest.mark.slow
def test_a_person_can_play_a_seat_to_the_end(browser: Any, tmp_path: Path) -> None:
    import interplay as ip

    small = recipe(
        WHOLE, policies={"player": {"base": "tiny-16x1"}}, train={"steps": 1}, rollout={"tasks": 1},
        sampling={"max_tokens": 3}, records={"tensorboard": "off"},
        eval={"opponents": [], "before": False, "after": False},
    )  # fmt: skip
    ip.train(small, run=tmp_path / "runs" / "small", quiet=True)
    with viewer(tmp_path / "runs") as url:
        seen = Seen(browser, url)
        seen.show("/run/small/play", "text=Begin")
        seen.page.fill("input[placeholder='as in the recipe']", "bot:random")
        seen.page.click("text=Begin")
        moves, end = seen.page.locator(".moves button:enabled"), seen.page.locator("text=The end")
        for _ in range(9):
            moves.or_(end).first.wait_for(timeout=120_000)
            if end.count():
                break
            moves.first.click()
        end.wait_for(timeout=120_000)
        assert seen.page.locator(".table .reward").count() > 0 and seen.wrong == []
        seen.context.close()
