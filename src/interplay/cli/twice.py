"""`interplay check` of an outside program: it runs every task twice with the same replies.

A call that lists all replies (a required tool call, a strict schema) gets one of them, any other call a few words. A
program that asks the same after the same replies can be forked, and a replay can show whether a reply caused its crash.
If processes are kept for several episodes (`env.program.keep`), a task also runs in a process that has run others: it
must ask the same there. The way it repeats earlier replies in its prompts shows how much of a conversation a model will
recognise as its own (`agents/memory.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from rich.console import Console
from rich.table import Table

from interplay import envs
from interplay.config import load, parse_options
from interplay.envs.programs.counts import CRASHED
from interplay.envs.programs.program import OutsideProgram
from interplay.envs.programs.replay import difference
from interplay.envs.programs.run import Inquiry
from interplay.errors import ConfigError, EnvError, counted
from interplay.types import Message, Sample, Spoken, Task, seed_of

WORDS = ("yes", "no", "maybe", "one", "two", "three", "seven", "blue", "stone", "river", "light", "42", "done")

USED = "in a process that had run other episodes"


@dataclass
class Ran:
    """One run: what was asked at each decision, by role, and how it ended."""

    asked: list[dict[str, Inquiry]] = field(default_factory=list)
    end: str = ""
    failed: bool = False  # in training, its episode would be dropped
    crashed: bool = False  # in training, its team would get the reward `crashed`


def check_program(console: Console, name: str, options: Sequence[str], tasks: int, seed: int) -> int:
    """Run the check and return the exit code: 0 if nothing differs."""
    given = parse_options(options)
    if name != "program":
        recipe = load(name, options)
        name, given = recipe.env.name, recipe.env.options
        if name != "program":
            raise ConfigError(f"env.name is '{name}'; expected a recipe with a program, or interplay check {name}.")
    different, drift, calls, keep = 0, Counter[str](), 0, 1
    crashed, failed = 0, 0
    for index in range(tasks):
        task = envs.sample_task(name, given, "train", index, seed)
        first, again = _ran(task, alone=True), _ran(task, alone=True)
        calls += sum(map(len, first.asked))
        drift += _recognised(first)
        keep = OutsideProgram(task).options.program.keep
        why = compare(first, again) or (_kept(task, first) if keep > 1 else "")
        if why:
            different += 1
            if different == 1:
                console.print(f"task {index}: {why}", highlight=False, soft_wrap=True)
        if not crashed + failed and (first.crashed or first.failed):
            console.print(f"task {index}: {first.end}", highlight=False, soft_wrap=True, markup=False)
        crashed, failed = crashed + first.crashed, failed + first.failed
    also = f", and once {USED}" if keep > 1 else ""
    title = f"interplay check: {counted(tasks, 'task')}, each run twice{also}"
    table = Table("", "", title=title, title_justify="left")
    table.add_row("calls", str(calls))
    later = "in a later run" if also else "the second time"
    table.add_row(f"tasks that asked for something else {later}", str(different))
    table.add_row("tasks whose program crashed after such replies", str(crashed))
    table.add_row("tasks that failed, so that training would drop them", str(failed))
    for how, count in sorted(drift.items()):
        table.add_row(f"history {how}", f"{count} ({count / max(1, calls):.0%})")
    console.print(table)
    return 1 if different or failed else 0


def _kept(task: Task, first: Ran) -> str:
    """How a run in a process that has run other episodes differs from the first run; empty if it does not. Of two runs
    in processes that are kept, at most one is the first of its process."""
    why = compare(first, _ran(task)) or compare(first, _ran(task))
    return f"{USED}, {why}" if why else ""


def _ran(task: Task, alone: bool = False) -> Ran:
    """Run a task once. The replies depend only on what is asked, so all runs of a task get the same replies. With
    `alone`, it runs in a fresh process."""
    env = envs.make(task)
    assert isinstance(env, OutsideProgram)
    env.alone = alone
    out = Ran()
    try:
        while env.observe():
            now = env.waiting
            out.asked.append(now)
            env.say({role: _reply(asked) for role, asked in now.items()})
        rewards = envs.outcome_of(env)
        out.crashed = any(r.name == CRASHED for r in rewards)
        out.end = f"{[(r.name, r.value) for r in rewards]} {env.state()[-500:]}"
    except EnvError as error:
        out.end, out.failed = str(error), True
    finally:
        env.close()
    return out


def _reply(asked: Inquiry) -> Spoken:
    at = seed_of("check", asked.digest)
    if asked.call.only:
        chosen = asked.call.only[at % len(asked.call.only)]
        calls = tuple(replace(call, id=f"call_{at:x}_{n}") for n, call in enumerate(chosen.calls))
        return replace(chosen, calls=calls)
    text = " ".join(WORDS[(at >> (5 * n)) % len(WORDS)] for n in range(1 + at % 5))
    for stop in asked.call.stop:
        text = text.partition(stop)[0]
    return Spoken(text)


def compare(first: Ran, again: Ran) -> str:
    """The first difference, in words; empty if there is none."""
    for number, (before, now) in enumerate(zip(first.asked, again.asked, strict=False)):
        for role, asked in before.items():
            if role not in now or now[role].digest != asked.digest:
                return f"call {number}: {difference(asked, list(now.values()))}"
    if len(first.asked) != len(again.asked):
        return f"it asked {counted(len(first.asked), 'time')} and then {counted(len(again.asked), 'time')}."
    return "" if first.end == again.end else f"it ended differently: {first.end} and then {again.end}"


def _recognised(ran: Ran) -> Counter[str]:
    """Count how earlier replies were recognised in later prompts, with the tokenizer of the model `tiny`."""
    from interplay.agents.memory import Memory, written
    from interplay.agents.render import Renderer
    from interplay.models.tiny import build_tokenizer

    tokenizer = build_tokenizer()
    renderer = Renderer(tokenizer, [int(tokenizer.eos_token_id or 0)])
    memories: dict[str, Memory] = {}
    found: Counter[str] = Counter()
    for number, now in enumerate(ran.asked):
        for role, asked in now.items():
            memory = memories.get(role, Memory())
            recalled = memory.recall(renderer, asked.messages, asked.call)
            found[recalled.history] += 1
            spoken = _reply(asked)
            text = written(renderer.syntax, Message("assistant", spoken.content, tool_calls=spoken.calls))
            sample = Sample(f"{number}", recalled.prompt.ids, renderer.encode_reply(text), (), (), text)
            memories[role] = memory.remember(recalled, asked.call, spoken, renderer, sample)
    return found
