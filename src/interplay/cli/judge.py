"""`interplay judge collect|train|export|audit|serve`: collect labelled answers from a run, train a reward model, export
one from a run, audit a judge, and serve a reward model."""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table

from interplay.cli.effect import written_as
from interplay.errors import ConfigError, DataError, counted, did_you_mean

if TYPE_CHECKING:
    from interplay.rewards.agreement import Agreement
    from interplay.training.preference import Fitting, RewardModel
    from interplay.training.rater import Split

app = typer.Typer(help="Collect answers for, train, export, audit and serve judges.", no_args_is_help=True)
console = Console()
FolderArgument = Annotated[Path, typer.Argument(help="The folder of a reward model.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, or auto: the GPU if there is one.")]
_SECONDS = 60.0  # that a call of a function which is audited may take


@app.command()
def collect(
    run: Annotated[Path, typer.Argument(help="The folder of a run with recorded episodes.")],
    label: Annotated[str, typer.Option(help="The component of the reward that says whether a reply is right.")],
    to: Annotated[Path, typer.Option(help="The file to write: JSON lines for judge train --kind verifier.")],
    role: Annotated[list[str] | None, typer.Option(help="Only the replies of this role; default all roles.")] = None,
) -> None:
    """Write a run's answers to training tasks to a file, and whether each of them was right.

    interplay judge collect runs/debate --label match --to answers.jsonl
    """
    from interplay.rollout.collect import collected

    rows = list(collected(run, label, role or ()))
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    right = sum(row["right"] for row in rows)
    asked = len({row["group"] for row in rows})
    said = f"{counted(len(rows), 'answer')} to {counted(asked, 'question')}, {right} right"
    console.print(f"{said}\n{to}", highlight=False, soft_wrap=True)


@app.command()
def train(
    context: typer.Context,
    data: Annotated[Path, typer.Argument(help="Comparisons or labelled answers: JSON lines (see docs/judges.md).")],
    to: Annotated[Path, typer.Option(help="The folder to write; new or empty.")],
    kind: Annotated[
        str, typer.Option(help="reward_model (comparisons) or verifier (labelled answers).")
    ] = "reward_model",
    base: Annotated[str, typer.Option(help="The model it is made from.")] = "tiny",
    epochs: Annotated[int, typer.Option(help="Times that all rows are trained on.", min=1)] = 2,
    batch: Annotated[int, typer.Option(help="Rows of one optimiser step.", min=1)] = 32,
    lr: Annotated[float, typer.Option(help="Learning rate.")] = 2e-5,
    rank: Annotated[int, typer.Option(help="Train a LoRA adapter of this rank; 0 trains all weights.", min=0)] = 0,
    balance: Annotated[
        str | None,
        typer.Option(
            help="verifier: question (the default), class or none; reward_model: none (the default) or length, which "
            "keeps it from learning that longer replies are better."
        ),
    ] = None,
    holdout: Annotated[float, typer.Option(help="Share of the questions that is used for testing only.")] = 0.2,
    seed: Annotated[int, typer.Option(help="Of all random choices.")] = 0,
    device: Device = "auto",
) -> None:
    """Train a reward model or a verifier, and print how it does on held-out questions.

    interplay judge train pairs.jsonl --base smollm2 --to judges/taste
    """
    how = _balance(kind, balance)
    if not 0 < lr < math.inf:
        raise ConfigError(f"--lr is {lr}; expected a positive number.")
    _refuse_full(to)
    from interplay.cli.quiet import quiet_libraries
    from interplay.config import AdapterSection, TrainSection
    from interplay.training.preference import Fitting, new_reward_model
    from interplay.training.rater import calibrate

    quiet_libraries()
    rows = _rows(data, kind, holdout, seed, how)
    chosen: Literal["reward_model", "verifier"] = "verifier" if kind == "verifier" else "reward_model"
    adapter = AdapterSection(rank=rank) if rank else None
    model = new_reward_model(chosen, base, TrainSection(), _where(device), seed, adapter)
    _make(to)
    line, found = _fitted(model, rows, Fitting(epochs, batch, lr, seed), how)
    fitted = calibrate(model, rows.test, seed)
    model.save(to)
    about = {"data": data.name, "trained": len(rows.train), "seed": seed, "base": base, **_written(found)}
    if fitted is not None:
        about["calibrated"] = asdict(fitted)
        line += (
            f"\ntemperature {fitted.temperature:.2f} on half of them; calibration error on the other half "
            f"{fitted.before:.3f} before, {fitted.after:.3f} after"
        )
    (to / "report.json").write_text(json.dumps(about, indent=1) + "\n")
    console.print(f"{line}\n{to}", highlight=False, soft_wrap=True)


def _rows(data: Path, kind: str, holdout: float, seed: int, balance: str) -> Split:
    """The rows of a file, those to train on and those to test on. Says how many say nothing about a judge."""
    from interplay.training.rater import evened, split

    rows = split(data, kind, holdout, seed)
    if rows.same:
        said = f"left out {counted(rows.same, 'comparison')} of two equal replies"
        console.print(said, highlight=False, soft_wrap=True)
    return replace(rows, train=evened(rows.train, seed)) if balance == "length" else rows


def _balance(kind: str, balance: str | None) -> str:
    """Check both options. Returns how to balance; without --balance, the default of the kind."""
    if kind not in ("reward_model", "verifier"):
        raise ConfigError(f"--kind is '{kind}'; expected reward_model or verifier.")
    known = ("question", "class", "none") if kind == "verifier" else ("none", "length")
    if balance not in (None, *known):
        raise ConfigError(f"--balance is '{balance}'; expected for --kind {kind}: {', '.join(known)}.")
    return balance or known[0]


def _shorter(found: Agreement) -> str:
    """How a judge does where it cannot be right by preferring the longer reply."""
    if not found.shorter_count:
        return ""
    return f", and about {found.shorter:.1%} of the {found.shorter_count} that the shorter one won"


def _written(found: Any) -> dict[str, Any]:
    """A measurement for a JSON file. What could not be measured is null."""
    return {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in asdict(found).items()}


def _fitted(model: RewardModel, rows: Split, how: Fitting, balance: Any) -> tuple[str, Any]:
    """Train and test the model. Returns a line for the user, and the numbers."""
    from interplay.training.rater import fit_answers, fit_pairs, tested, verified

    if model.kind == "verifier":
        fit_answers(model, rows.train, how, balance)
        right = verified(model, rows.test)
        return (
            f"AUC {right.auc:.3f}, within a question {right.within:.3f}; best of a question's answers "
            f"{right.chosen:.1%} right (random {right.random:.1%}, majority {right.majority:.1%}, longest "
            f"{right.longest:.1%}, oracle {right.oracle:.1%}) on {right.questions} held-out questions"
        ), right
    fit_pairs(model, rows.train, how)
    found = tested(model, rows.test)
    return (
        f"right about {found.accuracy:.1%} [{found.low:.1%}, {found.high:.1%}] of {found.count} held-out pairs "
        f"(the longer one wins: {found.longer:.1%}){_shorter(found)}; calibration error {found.calibration:.3f}"
    ), found


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="The folder of a run with a judge that was trained in it.")],
    to: Annotated[Path, typer.Option(help="The folder to write; new or empty.")],
    judge: Annotated[str | None, typer.Option(help="Which judge, if the run trained several.")] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="A checkpoint's folder; default the newest.")] = None,
    device: Device = "auto",
) -> None:
    """Write a reward model or verifier that was trained during a run as a Hugging Face model for sequence
    classification, which can be audited, served, and used in other runs.

    interplay judge export runs/story --to judges/taste
    """
    _refuse_full(to)
    from interplay.cli.evaluate import trained_judges
    from interplay.cli.quiet import quiet_libraries
    from interplay.config import load
    from interplay.rollout.resolve import resolve

    quiet_libraries()
    if not run.is_dir():
        raise ConfigError(f"'{run}' is no run folder; expected one made by interplay train.")
    plan = resolve(load(str(run), [f"device={device}"]))
    trained = [name for name, section in plan.recipe.judges.items() if section.train is not None]
    if not trained:
        raise ConfigError(f"the run '{run}' trained no judge; expected one whose recipe has [judges.NAME.train].")
    if judge is None and len(trained) > 1:
        raise ConfigError(f"the run trained the judges {', '.join(sorted(trained))}; say which with --judge.")
    name = judge or trained[0]
    if name not in trained:
        raise ConfigError(f"--judge is '{name}', which this run does not train; {did_you_mean(name, trained)}")
    _make(to)
    model = trained_judges(str(run), plan, checkpoint).pupils[name].model
    model.save(to)
    console.print(f"judge '{name}', version {model.version}, is in {to}", highlight=False, soft_wrap=True)


def _refuse_full(folder: Path) -> None:
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"--to is '{folder}', which is not empty; expected a new folder.")


def _make(folder: Path) -> None:
    """Make the folder before the work begins: a mistake in its name must not cost the work."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"--to is '{folder}', which cannot be made ({error.strerror}); choose another folder."
        ) from None


@app.command()
def audit(
    who: Annotated[
        str,
        typer.Argument(
            help="A reward model's folder, a function of yours (module:function), or a model that speaks (tiny, "
            "smollm2, …)."
        ),
    ],
    data: Annotated[Path, typer.Argument(help="Comparisons, such as mt_bench's human_pairs.json.")],
    most: Annotated[int, typer.Option(help="The largest number of pairs to ask about.", min=2)] = 200,
    out: Annotated[Path | None, typer.Option(help="Also write the findings as JSON.")] = None,
    seed: Annotated[int, typer.Option(help="Of all random choices.")] = 0,
    device: Device = "auto",
) -> None:
    """Measure what influences a judge besides the quality of a reply, and how often the judge agrees with people.

    The exit code is 1 if the judge has a fault.

    interplay judge audit judges/taste human_pairs.json
    """
    from interplay.cli.quiet import quiet_libraries
    from interplay.rewards.agreement import agreement
    from interplay.rewards.audit import audit as run_audit
    from interplay.rewards.audit import in_both_orders
    from interplay.rewards.comparisons import read_comparisons
    from interplay.rewards.preference import in_random_order

    quiet_libraries()
    pairs = in_random_order(read_comparisons(data), seed)[:most]
    if len(pairs) < 2:
        raise DataError(f"'{data}' has {counted(len(pairs), 'comparison')}; expected at least 2.")
    judge = _judge(who, device, seed)
    found = agreement(pairs, in_both_orders(judge, pairs))
    findings = run_audit(judge, pairs)
    table = Table("check", "", "value", "95%", "", title=f"interplay judge audit {who}", title_justify="left")
    for f in findings:
        word = "[red]FAULT[/]" if f.fault else "[green]pass[/]"
        table.add_row(f.check, word, f"{f.value:.3f}", f"{f.low:.3f} to {f.high:.3f}", f.words)
    console.print(table)
    console.print(
        f"agrees with {found.accuracy:.1%} [{found.low:.1%}, {found.high:.1%}] of {found.count} labels (the longer one "
        f"wins: {found.longer:.1%}){_shorter(found)}, kappa {found.kappa:.2f}, coverage {found.coverage:.1%}",
        highlight=False, soft_wrap=True,
    )  # fmt: skip
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(
            json.dumps({"agreement": _written(found), "findings": [_written(f) for f in findings]}, indent=1)
        )
    raise typer.Exit(1 if any(f.fault for f in findings) else 0)


@app.command()
def serve(
    context: typer.Context,
    folder: FolderArgument,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen on.", min=0, max=65535)] = 8700,
    key_variable: Annotated[
        str, typer.Option(help="Environment variable with the bearer token that requests need.")
    ] = "INTERPLAY_REWARD_KEY",
    batch: Annotated[int, typer.Option(help="The largest number of replies scored together.", min=1)] = 256,
    device: Device = "auto",
) -> None:
    """Serve a reward model over HTTP: POST /score, GET /health. A recipe names it: who = "http://127.0.0.1:8700".

    interplay judge serve judges/taste --port 8700
    """
    from interplay.cli.quiet import quiet_libraries
    from interplay.serving.reward import RewardServer, check_address
    from interplay.serving.reward import serve as run

    quiet_libraries()
    os.environ["TOKENIZERS_PARALLELISM"] = "true"  # `main` turned it off for commands that start child processes
    token = os.environ.get(key_variable, "").strip()
    if not token and written_as(context, "key_variable"):
        raise ConfigError(
            f"--key-variable is '{key_variable}', but this environment variable is not set or empty; expected the "
            "token that requests need in it, or no --key-variable, to serve without a token."
        )
    check_address(host, token)
    server = RewardServer(_load(folder, device), token, batch)
    guarded = "with a token" if token else "without a token"

    def ready(port: int) -> None:
        said = f"{server.model.kind} {server.version} on http://{host}:{port}, {guarded}"
        console.print(said, highlight=False, soft_wrap=True)

    run(server, host, port, ready)


def _where(device: str) -> Any:
    import torch

    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device not in ("cpu", "cuda"):
        raise ConfigError(f"--device is '{device}'; expected cpu, cuda or auto.")
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("--device is 'cuda', but torch finds no GPU here; expected cpu or auto.")
    return device, torch.bfloat16 if device == "cuda" else torch.float32


def _load(folder: Path, device: str) -> RewardModel:
    from interplay.config import TrainSection
    from interplay.training.preference import load_reward_model

    return load_reward_model(folder, TrainSection(), *_where(device))


def _judge(who: str, device: str, seed: int) -> Any:
    """A function that takes pairs and returns the judge's verdict on each, in the order in which the pair is shown."""
    from functools import partial

    from interplay.config.judges import HTTP
    from interplay.training.rater import model_verdicts, scored_verdicts, spoken_verdicts

    if who.startswith(HTTP):
        raise ConfigError(f"WHO is '{who}', a reward server; expected the folder of the model that it serves.")
    if ":" in who and not Path(who).exists():
        from interplay.rewards.function import FunctionScorer

        return partial(scored_verdicts, FunctionScorer("WHO", who, _SECONDS))
    if (Path(who) / "config.json").is_file():
        classes = json.loads((Path(who) / "config.json").read_text()).get("architectures") or [""]
        if classes[0].endswith("ForSequenceClassification"):
            return partial(model_verdicts, _load(Path(who), device))
    from interplay.agents.render import Renderer
    from interplay.engines.local import LocalEngine
    from interplay.models.load import load

    where, dtype = _where(device)
    loaded = load(who, where, dtype, seed)
    engine = LocalEngine(loaded.model, tokenizer=loaded.tokenizer)
    return partial(spoken_verdicts, engine, Renderer(loaded.tokenizer, loaded.stop_ids))
