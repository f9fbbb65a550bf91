"""The plots of studies, each as SVG for pages and as PNG for PDFs. A plot that several pages show is drawn once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from interplay.errors import ConfigError
from interplay.publishing.results import SEATED, Budget, Contrast, Results

_COLOURS = ("#1b6ca8", "#c8553d", "#5b8e7d", "#8f5fa8", "#d69f2e", "#5a6472", "#b0578d")
_POINTS = 30  # of a curve


@dataclass
class Plots:
    folder: Path
    drawn: set[str] = field(default_factory=set)

    def tests(self, results: Results) -> str:
        """Gold of every arm in every test: a point for each seed, and the mean with its interval."""
        return self._once(f"{results.name}-tests", lambda: _tests(results))

    def curves(self, results: Results, budget: Budget = "learner") -> str:
        """Gold while training, against the learner's sampled tokens or everybody's: the mean over seeds."""
        name = f"{results.name}-curves" if budget == "learner" else f"{results.name}-curves-{budget}"
        return self._once(name, lambda: _curves(results, budget))

    def proxies(self, results: Results) -> str:
        """Gold and the learned judge's reward while training, against the learner's tokens, a panel for each arm."""
        return self._once(f"{results.name}-proxy", lambda: _proxies(results))

    def contrasts(self, contrasts: Sequence[Contrast]) -> str:
        """Every contrast with its interval, a panel for each study. Marks of significant contrasts are filled."""
        return self._once("contrasts", lambda: _contrasts(contrasts))

    def _once(self, name: str, draw: Callable[[], Any]) -> str:
        if name not in self.drawn:
            from matplotlib import pyplot

            figure = draw()
            figure.savefig(self.folder / f"{name}.svg", metadata={"Date": None})
            figure.savefig(self.folder / f"{name}.png", dpi=130, metadata={"Software": None})
            pyplot.close(figure)
            self.drawn.add(name)
        return name


def _figure(wide: float, high: float, rows: int = 1, columns: int = 1) -> tuple[Any, list[Any]]:
    """A figure and its panels, row by row."""
    try:
        import matplotlib
    except ImportError:
        raise ConfigError("plots need matplotlib: pip install 'interplay[publish]'.") from None
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "interplay"  # so that the same runs give the same files
    matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text
    from matplotlib import pyplot

    figure, grid = pyplot.subplots(rows, columns, figsize=(wide, high), layout="constrained", squeeze=False)
    panels = list(grid.flat)
    for panel in panels:
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(labelsize=8)
    return figure, panels


def _under(figure: Any, handles: Any, labels: Any, columns: int) -> None:
    """Put a legend under the panels, where it covers nothing."""
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=8)


def _tests(results: Results) -> Any:
    names, arms = list(results.about["tests"]), results.arms
    usual = tuple(SEATED)  # these have the same colour in every study
    colours = {
        name: _COLOURS[(usual.index(name) if name in usual else 3 + k) % len(_COLOURS)] for k, name in enumerate(names)
    }
    figure, (axes,) = _figure(7.0, 0.9 + 0.45 * len(arms))
    for k, test in enumerate(names):
        for i, arm in enumerate(arms):
            y = i + 0.24 * (k - (len(names) - 1) / 2)
            values = list(results.values(arm, test, results.about["gold"]).values())
            found = results.estimate(arm, test)
            axes.scatter(
                values, [y] * len(values), s=13, color="white", edgecolors=colours[test], linewidths=0.8, zorder=3
            )
            named = SEATED.get(test, test) if i == 0 else None
            axes.plot([found.value], [y], "D", ms=4.5, color=colours[test], label=named, zorder=4)
            if math.isfinite(found.low):
                axes.plot([found.low, found.high], [y, y], color=colours[test], lw=1.5)
    for i in range(1, len(arms), 2):
        axes.axhspan(i - 0.5, i + 0.5, color="#f3f4f7", zorder=0)
    axes.set_yticks(range(len(arms)), arms)
    axes.set_ylim(len(arms) - 0.5, -0.5)
    axes.set_xlabel(f"{results.about['gold']} per episode, test tasks", fontsize=9)
    handles, labels = axes.get_legend_handles_labels()
    _under(figure, handles, labels, len(names))
    return figure


@dataclass
class _Curve:
    """Means over runs, and for every point the lowest and the highest run."""

    x: list[float]
    y: list[float]
    low: list[float]
    high: list[float]


def _mean_curve(runs: Sequence[Sequence[tuple[float, float]]]) -> _Curve:
    """Return the means of x and y over runs, up to the end of the shortest run. Each point is the mean of a few steps,
    so that a curve has at most `_POINTS` points."""
    length = min(map(len, runs), default=0)
    size = max(1, math.ceil(length / _POINTS))
    out = _Curve([], [], [], [])
    for at in range(0, length, size):
        parts = [run[at : min(at + size, length)] for run in runs]
        by_run = [fmean(y for _, y in part) for part in parts]
        out.x.append(fmean(x for part in parts for x, _ in part))
        out.y.append(fmean(by_run))
        out.low.append(min(by_run))
        out.high.append(max(by_run))
    return out


def _curves(results: Results, budget: Budget) -> Any:
    figure, (axes,) = _figure(7.0, 3.6)
    key = f"{results.paid}/{results.about['gold']}/{results.about['role']}"
    for i, arm in enumerate(results.arms):
        curve, colour = _mean_curve(list(results.curve(arm, key, budget).values())), _COLOURS[i % len(_COLOURS)]
        axes.plot(curve.x, curve.y, color=colour, lw=1.3, label=arm)
        axes.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.1, linewidth=0)
    who = "the learner" if budget == "learner" else "all policies and judges"
    axes.set_xlabel(f"tokens sampled by {who}", fontsize=9)
    of = " of the kept replies" if results.paid == "reward_kept" else ""
    axes.set_ylabel(f"{results.about['gold']}{of} in training", fontsize=9)
    handles, labels = axes.get_legend_handles_labels()
    _under(figure, handles, labels, 4)
    return figure


def _proxies(results: Results) -> Any:
    arms = [arm for arm in results.arms if any(results.curve(arm, "judge/taste/proxy").values())]
    rows = max(1, math.ceil(len(arms) / 3))
    figure, panels = _figure(7.2, 0.5 + 1.8 * rows, rows, 3)
    lines: list[Any] = []
    for arm, panel in zip(arms, panels, strict=False):
        lines = []
        for axes, key, colour in ((panel, "gold", _COLOURS[0]), (panel.twinx(), "proxy", _COLOURS[1])):
            curve = _mean_curve(list(results.curve(arm, f"judge/taste/{key}").values()))
            lines += axes.plot(curve.x, curve.y, color=colour, lw=1.2)
            axes.spines[["top"]].set_visible(False)
            axes.tick_params(labelsize=7, labelcolor=colour, axis="y")
        panel.tick_params(labelsize=7, axis="x")
        panel.locator_params(axis="x", nbins=4)
        panel.set_title(arm, fontsize=9)
    for panel in panels[len(arms) :]:
        panel.axis("off")
    if lines:
        _under(figure, lines, ["gold (left)", "judge's reward (right)"], 2)
    for panel in panels[max(0, len(arms) - 3) : len(arms)]:
        panel.set_xlabel("learner's tokens", fontsize=8)
    return figure


def _contrasts(contrasts: Sequence[Contrast]) -> Any:
    by_study: dict[str, list[Contrast]] = {}
    for c in contrasts:
        by_study.setdefault(c.study, []).append(c)
    most = max(map(len, by_study.values()))
    rows = math.ceil(len(by_study) / 2)
    figure, panels = _figure(7.4, 0.5 + rows * (0.9 + 0.26 * most), rows, 2 if len(by_study) > 1 else 1)
    for (study, found), panel in zip(by_study.items(), panels, strict=False):
        for i, c in enumerate(found):
            sure = c.corrected < 0.05
            colour = _COLOURS[1] if sure else _COLOURS[5]
            if math.isfinite(c.difference.low):
                panel.plot([c.difference.low, c.difference.high], [i, i], color=colour, lw=1.6)
            panel.plot([c.difference.value], [i], "o", ms=5, color=colour, mfc=colour if sure else "white")
        panel.axvline(0.0, color="#9aa2ae", lw=0.8, zorder=0)
        panel.set_yticks(range(len(found)), [f"{c.first} − {c.second}" for c in found], fontsize=7)
        panel.set_ylim(len(found) - 0.5, -0.5)
        panel.locator_params(axis="x", nbins=5)
        panel.set_title(study, fontsize=9)
        panel.set_xlabel(f"difference of {', '.join(dict.fromkeys(c.where for c in found))}", fontsize=8)
    for panel in panels[len(by_study) :]:
        panel.axis("off")
    return figure
