"""Measures how fast the viewer answers for a large run: python benchmarks/viewer.py [--gigabytes 1] [--episodes 10000]

Writes a run of that size to a temporary folder, starts `interplay view` on it and asks for the pages as a browser does.
Prints seconds from the start of the process to the first answers, seconds of one episode, how long a step that is
written now takes to be shown, and the largest memory. Where chromium and playwright are installed, also seconds until a
browser has drawn the first page (all charts in its window) and an episode, with the CPU time of the page's main thread
and of the server: on a machine that does other work, these say more than the seconds.
"""

from __future__ import annotations

import argparse
import http.cookiejar
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from interplay.rollout import records
from interplay.types import Credit, Episode, Keys, Message, Observation, Policy, Rewards, Sample, Task, Turn


def episode(number: int, size: int) -> Episode:
    """An episode whose record has about `size` bytes, in turns of 200 tokens."""
    name, turns = f"task-{number % 500}#{number}", []
    for decision in range(max(1, size // 9000)):
        tokens = tuple((number + i) % 30_000 for i in range(200))
        messages = (Message("user", "What follows? " * 60),)
        prompt = tuple((number + 7 * i) % 30_000 for i in range(300))
        logprobs = tuple(-0.1234567890123 * (1 + (i + number) % 9) for i in range(200))
        key = f"{name}/{decision}a0"
        sample = Sample(key, prompt, tokens, logprobs, (3,) * 200, "words " * 200, messages=messages)
        keys = Keys(f"task-{number % 500}", 0, name, decision, "a", "", "", f"{number}.{decision}")
        turns.append(Turn(key, None, keys, "player", "words " * 200, Observation(messages), (sample,)))
    task = Task(f"task-{number % 500}", "math", number, {})
    return Episode(name, task, 0, {"a": Policy("player")}, turns, Rewards.team("correct", float(number % 3 == 0)))


def write(folder: Path, gigabytes: float, count: int) -> int:
    folder.mkdir(parents=True)
    recipe = {
        "name": "large", "env": {"name": "math"}, "policies": {"player": {"base": "tiny"}}, "seats": "player",
        "algorithm": {"name": "grpo"}, "train": {"steps": count // 10},
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps({"recipe": recipe, "seed": 0, "versions": {}}))
    size = int(gigabytes * 2**30 / count)
    for step in range(1, count // 10 + 1):
        add_step(folder, step, count, size)
    return (folder / "episodes.jsonl").stat().st_size


def add_step(folder: Path, step: int, count: int, size: int) -> None:
    """Write the metrics and ten episodes of a step."""
    row = {"step": step, "reward": step / count, **{f"player/m{i}": i * step / count for i in range(60)}}
    with (folder / "metrics.jsonl").open("a") as metrics:
        metrics.write(json.dumps(row) + "\n")
    played = [episode(10 * step + i, size) for i in range(10)]
    given = Credit()
    given.advantages = {t.last.id: 0.5 for e in played for t in e.turns}
    records.write(folder / "episodes.jsonl", played, step, given)


class Browser:
    def __init__(self, url: str) -> None:
        jar = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        self.opener, self.home = urllib.request.build_opener(jar), url.partition("?")[0]
        self.opener.open(url).read()

    def ask(self, path: str, **query: Any) -> tuple[Any, float]:
        began = time.monotonic()
        url = f"{self.home}api/{path}?{urllib.parse.urlencode(query)}"
        found = json.loads(self.opener.open(url).read())
        return found, time.monotonic() - began


def memory(process: int) -> float:
    """The largest memory of a process so far, in MiB."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    return int(found.group(1)) / 1024 if found else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=1.0, help="size of the run")
    parser.add_argument("--episodes", type=int, default=10_000, help="episodes of the run")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        run = Path(place) / "large"
        size = write(run, given.gigabytes, given.episodes)
        print(f"{size / 2**30:.2f} GiB, {given.episodes} episodes")
        began = time.monotonic()
        command = [sys.executable, "-m", "interplay", "view", str(run), "--no-browser"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        started = time.monotonic() - began
        try:
            browser = Browser(url)
            measure(browser, started)
            draw(url, process.pid)
            watch(browser, run, given.episodes)
            print(f"largest memory             {memory(process.pid):6.0f} MiB")
        finally:
            process.terminate()
            process.wait()


def watch(browser: Browser, run: Path, count: int) -> None:
    """How long after a step was written the page has been told, and has its numbers and episodes; several times."""
    waits = []
    with browser.opener.open(f"{browser.home}api/events") as events:
        while b"data:" not in events.readline():  # what was known before
            pass
        for step in range(count // 10 + 1, count // 10 + 6):
            add_step(run, step, count, 100_000)
            began = time.monotonic()
            shown = False
            while not shown:
                while b"data:" not in events.readline():
                    pass
                steps, _ = browser.ask("run/large/metrics", now=step)
                rows, _ = browser.ask("run/large/episodes", now=step)
                shown = steps["steps"][-1] == step == rows["rows"][0]["step"]
            waits.append(time.monotonic() - began)
    print(f"a new step is shown after  {statistics.median(waits):6.2f} s (worst of {len(waits)}: {max(waits):.2f} s)")


def cpu(process: int) -> float:
    """The CPU time of a process so far, in seconds."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


DRAWN = """() => {
    const shown = [...document.querySelectorAll(".chart")].filter((c) => c.getBoundingClientRect().top < innerHeight);
    return shown.length > 0 && shown.every((c) => c.querySelector("canvas"));
}"""


def draw(url: str, server: int) -> None:
    """Seconds until the pages are drawn, in a browser that is already open."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        chromium = None
    if chromium is None:
        print("drawn in a browser         not measured: chromium or playwright is missing")
        return
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = opened.new_page()
        page.goto("about:blank")
        tools = page.context.new_cdp_session(page)
        tools.send("Performance.enable", {"timeDomain": "threadTicks"})

        def spent() -> tuple[float, float, float]:
            counted = {m["name"]: m["value"] for m in tools.send("Performance.getMetrics")["metrics"]}
            return time.monotonic(), counted["TaskDuration"], cpu(server)

        def tell(what: str, began: tuple[float, float, float]) -> None:
            seconds, page_cpu, server_cpu = (now - then for now, then in zip(spent(), began, strict=True))
            print(f"{what}  {seconds:6.2f} s (CPU time: page {page_cpu:.2f} s, server {server_cpu:.2f} s)")

        began = spent()
        page.goto(url)
        page.wait_for_function(DRAWN)
        tell("first page is drawn after", began)
        page.goto(f"{url.partition('?')[0]}#/run/large/episodes")
        page.wait_for_selector("table.episodes a")
        page.wait_for_timeout(1000)  # the rest of the table
        began = spent()
        page.click("table.episodes a >> nth=3")
        page.wait_for_selector("article.turn")
        tell("an episode is drawn after", began)
        opened.close()


def measure(browser: Browser, started: float) -> None:
    print(f"start of the server        {started:6.2f} s")
    first = sum(browser.ask(f"run/large/{question}")[1] for question in ("about", "metrics"))
    print(f"first page of the run      {first:6.2f} s")
    found, seconds = browser.ask("run/large/episodes")
    print(f"list of episodes           {seconds:6.2f} s")
    rows = found["rows"][:20]
    each = [browser.ask("run/large/episode", step=row["step"], id=row["id"])[1] for row in rows]
    print(f"one episode                {statistics.median(each):6.3f} s (worst of {len(each)}: {max(each):.3f} s)")
    began, rounds = time.monotonic(), 0
    while True:
        found, _ = browser.ask("run/large/episodes", sort="worst", role="a", round=rounds)
        rounds += 1
        if found["searched"] == found["of"]:
            break
    print(f"filter over all episodes   {time.monotonic() - began:6.1f} s ({rounds} requests)")


if __name__ == "__main__":
    main()
