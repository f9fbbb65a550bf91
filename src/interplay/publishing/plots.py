"""The plots of a study, each as SVG for pages and as PNG for PDFs."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import fmean
from typing import Any

from interplay.errors import ConfigError
from interplay.publishing.results import Budget, Results

_COLOURS = ("#1b6ca8", "#c8553d", "#5b8e7d", "#8f5fa8", "#d69f2e", "#5a6472", "#b0578d")


def _figure(wide: float = 6.4, high: float = 3.4) -> tuple[Any, Any]:
    try:
        import matplotlib
    except ImportError:
        raise ConfigError("plots need matplotlib: pip install 'interplay[publish]'.") from None
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "interplay"  # so that the same runs give the same files
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(wide, high), layout="constrained")
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _save(figure: Any, folder: Path, name: str) -> None:
    from matplotlib import pyplot

    figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
    figure.savefig(folder / f"{name}.png", dpi=160, metadata={"Software": None})
    pyplot.close(figure)


def tests(results: Results, folder: Path) -> str:
    """Plot the gold of every arm in every test: a point for each seed, and the mean with its interval."""
    figure, axes = _figure(6.8, 0.5 + 0.42 * len(results.arms) * 1.3)
    names = list(results.about["tests"])
    for k, test in enumerate(names):
        for i, arm in enumerate(results.arms):
            y = i + 0.24 * (k - (len(names) - 1) / 2)
            values = list(results.values(arm, test, results.about["gold"]).values())
            found = results.estimate(arm, test)
            axes.scatter(values, [y] * len(values), s=9, alpha=0.45, color=_COLOURS[k])
            axes.plot([found.value], [y], "D", ms=5, color=_COLOURS[k], label=test if i == 0 else None)
            if math.isfinite(found.low):
                axes.plot([found.low, found.high], [y, y], color=_COLOURS[k], lw=1.5)
    axes.set_yticks(range(len(results.arms)), results.arms)
    axes.invert_yaxis()
    axes.set_xlabel(f"{results.about['gold']} per episode, test tasks")
    axes.legend(frameon=False, fontsize=8)
    name = f"{results.name}-tests"
    _save(figure, folder, name)
    return name


def curves(results: Results, folder: Path, budget: Budget = "learner") -> str:
    """Plot gold during training, as the mean over seeds, against the tokens sampled by the learner or by everybody."""
    figure, axes = _figure()
    key = f"reward/{results.about['gold']}/{results.about['role']}"
    for i, arm in enumerate(results.arms):
        runs = list(results.curve(arm, key, budget).values())
        length = min(map(len, runs), default=0)
        x = [fmean(run[n][0] for run in runs) for n in range(length)]
        y = [fmean(run[n][1] for run in runs) for n in range(length)]
        axes.plot(x, y, color=_COLOURS[i % len(_COLOURS)], lw=1.4, label=arm)
    axes.set_xlabel(f"tokens sampled by {'the learner' if budget == 'learner' else 'everybody, judges too'}")
    axes.set_ylabel(f"{results.about['gold']} in training")
    axes.legend(frameon=False, fontsize=8)
    name = f"{results.name}-curves" if budget == "learner" else f"{results.name}-curves-{budget}"
    _save(figure, folder, name)
    return name


def proxies(results: Results, folder: Path) -> str:
    """Plot gold and the reward of the learned judge during training against the learner's tokens, with a panel for each
    arm. If the judge's reward rises and gold does not, the learner exploits errors of the judge."""
    arms = [arm for arm in results.arms if any(results.curve(arm, "judge/taste/proxy").values())]
    figure, axes = _panels(len(arms))
    for arm, panel in zip(arms, axes, strict=False):
        for key, colour, label in (("proxy", _COLOURS[1], "judge"), ("gold", _COLOURS[0], "gold")):
            runs = list(results.curve(arm, f"judge/taste/{key}").values())
            length = min(map(len, runs))
            x = [fmean(run[n][0] for run in runs) for n in range(length)]
            panel.plot(x, [fmean(run[n][1] for run in runs) for n in range(length)], color=colour, lw=1.3, label=label)
        panel.set_title(arm, fontsize=9)
    for panel in axes[: len(arms)][:1]:
        panel.legend(frameon=False, fontsize=8)
        panel.set_xlabel("learner's tokens", fontsize=8)
    name = f"{results.name}-proxy"
    _save(figure, folder, name)
    return name


def _panels(count: int) -> tuple[Any, list[Any]]:
    """Return small panels in rows of three."""
    figure, first = _figure(7.0, 2.1 * max(1, math.ceil(count / 3)))
    first.remove()
    grid = figure.subplots(max(1, math.ceil(count / 3)), 3, squeeze=False, sharey=True)
    panels = list(grid.flat)
    for panel in panels[count:]:
        panel.axis("off")
    for panel in panels:
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(labelsize=7)
    return figure, panels
