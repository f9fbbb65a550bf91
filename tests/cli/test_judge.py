"""`interplay judge`: train from a file, audit with an exit code, and refuse what makes no sense."""

from __future__ import annotations

import asyncio
import importlib
import json
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

from interplay.cli.main import app
from interplay.errors import ConfigError, DataError, JudgeError
from interplay.rewards.comparisons import read_answers, read_comparisons


def call(*args: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["judge", *args], catch_exceptions=True)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pairs") / "pairs.jsonl"
    rows = [{"question": f"Say {i}.", "chosen": "yes " * (1 + i % 3), "rejected": "no"} for i in range(48)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_reward_model_is_trained_reported_and_audited(pairs: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    options = ["--base", "tiny-32x1", "--lr", "0.003", "--epochs", "4", "--device", "cpu"]
    code, said = call("train", str(pairs), "--to", str(model), *options)
    assert code == 0 and "held-out pairs" in said and "the longer one wins" in said
    report = json.loads((model / "report.json").read_text())
    assert report["accuracy"] > 0.9 and (model / "config.json").is_file()
    out = tmp_path / "audit.json"
    code, said = call("audit", str(model), str(pairs), "--out", str(out), "--device", "cpu")
    findings = {f["check"]: f for f in json.loads(out.read_text())["findings"]}
    assert abs(findings["position"]["value"] - 0.5) < 1e-6  # a score does not know the order
    assert code == int(any(f["fault"] for f in findings.values()))
    with pytest.raises(ConfigError, match="which is not empty"):
        call("train", str(pairs), "--to", str(model))


def test_balanced_by_length_a_reward_model_does_not_learn_that_longer_is_better(tmp_path: Path) -> None:
    """People prefer the longer reply in four of five pairs, and nothing else tells the replies apart."""
    data, rows, rng = tmp_path / "pairs.jsonl", [], random.Random(0)
    for i in range(400):
        long, short = "word " * rng.randrange(8, 15), "word " * rng.randrange(1, 6)
        chosen, rejected = (short, long) if rng.random() < 0.2 else (long, short)
        rows.append({"question": f"Say {i}.", "chosen": chosen, "rejected": rejected})
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = {}
    for balance in ("none", "length"):
        to = tmp_path / balance
        options = ["--base", "tiny-32x1", "--lr", "0.003", "--epochs", "3", "--device", "cpu", "--balance", balance]
        code, said = call("train", str(data), "--to", str(to), *options)
        assert code == 0 and "that the shorter one won" in said
        found[balance] = json.loads((to / "report.json").read_text())
    assert found["none"]["shorter"] < 0.1 and found["none"]["trained"] > 300
    assert found["length"]["shorter"] > 0.25 and found["length"]["trained"] < 150
    with pytest.raises(ConfigError, match="--balance is 'question'; expected for --kind reward_model: none, length"):
        call("train", str(data), "--to", str(tmp_path / "new"), "--balance", "question")


def test_comparisons_that_the_longer_reply_always_won_cannot_be_balanced(tmp_path: Path) -> None:
    data = tmp_path / "pairs.jsonl"
    row = {"chosen": "yes yes", "rejected": "no"}
    data.write_text("".join(json.dumps({"question": f"Say {i}.", **row}) + "\n" for i in range(40)))
    with pytest.raises(DataError, match="balance 'length' leaves none"):
        call("train", str(data), "--to", str(tmp_path / "new"), "--base", "tiny-32x1", "--balance", "length")


def test_a_verifier_is_trained_from_labelled_answers(tmp_path: Path) -> None:
    rows = [{"question": f"{i // 2}?", "answer": "yes" if i % 2 else "no", "right": bool(i % 2)} for i in range(60)]
    data = tmp_path / "answers.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ["--kind", "verifier", "--base", "tiny-32x1", "--lr", "0.003", "--epochs", "6", "--device", "cpu"]
    code, said = call("train", str(data), "--to", str(tmp_path / "v"), *options)
    assert code == 0 and "within a question" in said and "oracle 100.0%" in said


RUN = """
name = "judged"
device = "cpu"
seats = { writer = "learner" }
[env]
name = "filler"
length = 4
[policies.learner]
base = "tiny-32x1"
[judges.taste]
kind = "reward_model"
who = "base:tiny-32x1"
train = { labels = "gold:proxy", every = 1, pairs = 16, lr = 3e-3, least = 0.0, adapter = { rank = 4 } }
[algorithm]
name = "rloo"
group = 4
[sampling]
max_tokens = 6
legal = true
[rollout]
tasks = 4
[train]
steps = 2
[records]
tensorboard = "off"
[eval]
opponents = []
"""


@pytest.mark.slow
def test_a_judge_that_learned_in_a_run_is_exported_and_chooses_the_best_of_several_replies(tmp_path: Path) -> None:
    """Its scores are those that it gave at the end of the run, with plain transformers too."""
    import torch
    from transformers import AutoModelForSequenceClassification

    from interplay.config import TrainSection, load
    from interplay.rollout.resolve import resolve
    from interplay.training.preference import load_reward_model
    from interplay.training.trainer import Trainer
    from interplay.types import Message

    (tmp_path / "recipe.toml").write_text(RUN)
    trainer = Trainer(resolve(load(tmp_path / "recipe.toml", [])), tmp_path / "run")
    trainer.train()
    model = trainer.judges.pupils["taste"].model
    trainer.close()
    asked = [((Message("user", "Write 4 signs."),), reply) for reply in ("1111", "0101", "0000")]
    wanted = model.scores(asked)
    assert max(wanted) > min(wanted)
    folder = tmp_path / "taste"
    code, said = call("export", str(tmp_path / "run"), "--to", str(folder), "--device", "cpu")
    assert code == 0 and said.startswith("judge 'taste', version 2, is in ")
    again = load_reward_model(folder, TrainSection(), "cpu", torch.float32)
    assert again.scores(asked) == pytest.approx(wanted, abs=1e-4) and again.version == 2
    theirs = AutoModelForSequenceClassification.from_pretrained(folder)
    with torch.no_grad():
        found = [float(theirs(input_ids=torch.tensor([ids])).logits) for ids in model.read(asked)]
    assert found == pytest.approx(model.raw(asked), abs=1e-4)
    with pytest.raises(ConfigError, match="which is not empty"):
        call("export", str(tmp_path / "run"), "--to", str(folder))
    with pytest.raises(ConfigError, match=r"--judge is 'tast'.*Did you mean 'taste'"):
        call("export", str(tmp_path / "run"), "--to", str(tmp_path / "other"), "--judge", "tast")

    from interplay.cli.evaluate import _choosing

    plan = resolve(load(tmp_path / "run", ["eval.best_of=4", "eval.best_by=taste"]), training=False)
    chooser = _choosing(plan, str(tmp_path / "run"), None)
    assert chooser.count == 4 and asyncio.run(chooser.by.scores(asked)) == pytest.approx(wanted, abs=1e-6)


def test_a_model_that_speaks_can_be_audited(pairs: Path) -> None:
    code, said = call("audit", "tiny-32x1", str(pairs), "--most", "8", "--device", "cpu")
    assert code in (0, 1) and "agrees with" in said and "position" in said


@pytest.mark.parametrize("rows", [0, 1])
def test_an_audit_needs_two_comparisons(tmp_path: Path, rows: int) -> None:
    """Every check of a judge passed that was asked about nothing."""
    data = tmp_path / "few.json"
    data.write_text(json.dumps([{"question": "q", "chosen": "a", "rejected": "b"}] * rows))
    sentence = f"'{data}' has {rows} comparison{'' if rows else 's'}; expected at least 2"
    with pytest.raises(DataError, match=re.escape(sentence)):
        call("audit", "tiny-32x1", str(data), "--device", "cpu")


def test_a_function_can_be_audited(pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was taken for the name of a model on Hugging Face."""
    (tmp_path / "own_audited.py").write_text(
        "def longer(question, reply):\n    return 1000 * len(reply)\n"
        "def echo(question, reply):\n    return float(question in reply)\n"
        "def bug(question, reply):\n    return 1 / 0\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    faults = {}
    for name in ("longer", "echo"):
        code, _ = call("audit", f"own_audited:{name}", str(pairs), "--out", str(tmp_path / f"{name}.json"))
        findings = json.loads((tmp_path / f"{name}.json").read_text())["findings"]
        faults[name] = [f["check"] for f in findings if f["fault"]]
        assert code == 1
    assert faults == {"longer": ["length", "echo", "style"], "echo": ["echo"]}
    with pytest.raises(JudgeError, match="the judge 'own_audited:bug' raised ZeroDivisionError"):
        call("audit", "own_audited:bug", str(pairs))
    with pytest.raises(ConfigError, match=r"WHO is 'own_audited:none', which cannot be imported"):
        call("audit", "own_audited:none", str(pairs))
    with pytest.raises(ConfigError, match=r"WHO is 'http://127.0.0.1:1', a reward server; expected the folder"):
        call("audit", "http://127.0.0.1:1", str(pairs))


def test_public_formats_are_read(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    file.write_text(json.dumps([{"input": "q", "output_1": "a", "output_2": "b", "label": 2}]))
    (found,) = read_comparisons(file)
    assert (found.first, found.second, found.label) == ("a", "b", 0.0)
    file.write_text(json.dumps([{"input": [["user", "q"]], "output_1": "a", "output_2": "b", "label": 1}]))
    (found,) = read_comparisons(file)
    assert found.question[0].content == "q" and isinstance(found.group, str)  # a name, by which rows are split
    talk = "\n\nHuman: Hi\n\nAssistant: Hello\n\nHuman: Bye\n\nAssistant: {}"
    file.write_text(json.dumps({"chosen": talk.format("Bye!"), "rejected": talk.format("No.")}))
    (found,) = read_comparisons(file)
    assert [m.role for m in found.question] == ["user", "assistant", "user"] and found.first == "Bye!"
    solved = {"question": "q", "ground_truth": "1", "m": {"is_correct": True, "solution": "1"}}
    file.write_text(json.dumps(solved))
    (answer,) = read_answers(file)
    assert answer.right and answer.text == "1"
    file.write_text(json.dumps({"a": 1}))
    for read in (read_comparisons, read_answers):
        with pytest.raises(DataError, match="row 1 has the fields"):
            read(file)


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--lr", "nan", "--lr is nan; expected a positive number"),
        ("--lr", "0", "--lr is 0.0; expected a positive number"),
        ("--device", "foo", "--device is 'foo'; expected cpu, cuda or auto"),
        ("--to", "{file}/new", "which cannot be made"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(
    pairs: Path, tmp_path: Path, option: str, value: str, said: str
) -> None:
    options = {"--to": str(tmp_path / "new"), option: value.format(file=pairs)}
    with pytest.raises(ConfigError, match=said):
        call("train", str(pairs), *(word for pair in options.items() for word in pair))
    assert not (tmp_path / "new").exists()


def test_comparisons_of_equal_replies_are_left_out_and_cut_conversations_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [{"question": f"Say {i}.", "chosen": "yes", "rejected": "no" if i % 4 else "yes"} for i in range(40)]
    rows[1]["chosen"] = rows[2]["chosen"] = "yes " * 2000
    data = tmp_path / "pairs.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ["--base", "tiny-32x1", "--epochs", "1", "--device", "cpu"]
    code, said = call("train", str(data), "--to", str(tmp_path / "new"), *options)
    assert code == 0 and "left out 10 comparisons of two equal replies" in said
    about = json.loads((tmp_path / "new" / "report.json").read_text())
    assert about["trained"] + about["count"] == 30
    assert caplog.text.count("reads only the last 1,024 tokens") == 1


def test_a_port_that_is_taken_is_named_and_a_free_one_is_told(
    pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    uvicorn = pytest.importorskip("uvicorn")
    model = tmp_path / "model"
    call("train", str(pairs), "--to", str(model), "--base", "tiny-32x1", "--epochs", "1", "--device", "cpu")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port} cannot be used .*choose another --port or --host"):
            call("serve", str(model), "--port", str(port), "--device", "cpu")
    ports = list[int]()
    monkeypatch.setattr(uvicorn.Server, "run", lambda _, sockets: ports.append(sockets[0].getsockname()[1]))
    code, said = call("serve", str(model), "--port", "0", "--device", "cpu")
    assert code == 0 and f"on http://127.0.0.1:{ports[0]}, without a token" in said


OWN = """
asked = 0

def ones(question, reply):
    global asked
    asked += 1
    return reply.count("1")
"""


@pytest.fixture
def own_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module with a judge that counts its calls, and beside it `run`, a run of one step with this judge."""
    (tmp_path / "own_ones.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    recipe = judged_recipe(tmp_path / "judged.toml", 'kind = "function"\nwho = "own_ones:ones"')
    train = ["train", str(recipe), "--run", str(tmp_path / "run"), "train.steps=1"]
    assert CliRunner().invoke(app, train, catch_exceptions=False).exit_code == 0
    module = importlib.import_module("own_ones")
    vars(module)["asked"] = 0
    yield module
    del sys.modules["own_ones"]


def judged_recipe(path: Path, judge: str) -> Path:
    """Write the recipe of `RUN` with another judge."""
    start, rest = RUN.split("[judges.taste]")[0], RUN.split("[algorithm]")[1]
    path.write_text(f"{start}[judges.taste]\n{judge}\n[algorithm]{rest}")
    return path


def evaluated(run: Path, *more: str) -> str:
    options = ["eval", str(run), "eval.games=4", 'eval.opponents=["team"]', "eval.success=gold", *more]
    return " ".join(CliRunner().invoke(app, options, catch_exceptions=False).output.split())


BEST = ("eval.best_of=3", "eval.best_by=taste")


def test_an_evaluation_says_that_its_replies_are_the_best_of_several(own_ones: ModuleType, tmp_path: Path) -> None:
    """Its tables looked like those of single replies."""
    told = "best of 3 replies by taste"
    assert told in evaluated(tmp_path / "run", *BEST) and own_ones.asked == 12
    assert told in (tmp_path / "run" / "eval" / "eval.md").read_text()
    written = json.loads((tmp_path / "run" / "eval" / "eval.json").read_text())
    assert (written["best_of"], written["best_by"]) == (3, "taste")
    assert "best of" not in evaluated(tmp_path / "run") and own_ones.asked == 12


def test_games_are_played_again_if_the_judge_that_chose_their_replies_may_have_changed(
    own_ones: ModuleType, tmp_path: Path
) -> None:
    """An evaluation used the games of an earlier one, although the function had been changed in between."""
    for number in (1, 2):
        evaluated(tmp_path / "run", *BEST)
        assert own_ones.asked == 12 * number
    assert (tmp_path / "run" / "eval" / "played.jsonl").stat().st_size  # the viewer shows them


def test_replies_chosen_by_a_reward_model_are_used_again_while_its_weights_are_the_same(
    pairs: Path, tmp_path: Path
) -> None:
    from interplay.cli.evaluate import _choosing
    from interplay.config import load
    from interplay.rollout.resolve import resolve

    found = []
    for name, lr in (("one", "0.003"), ("same", "0.003"), ("other", "0.001")):
        folder = tmp_path / name
        options = ["--base", "tiny-32x1", "--lr", lr, "--epochs", "1", "--device", "cpu"]
        assert call("train", str(pairs), "--to", str(folder), *options)[0] == 0
        recipe = judged_recipe(tmp_path / f"{name}.toml", f'kind = "reward_model"\nwho = "{folder}"')
        plan = resolve(load(str(recipe), ["eval.best_of=4", "eval.best_by=taste"]), training=False)
        found.append(_choosing(plan, str(recipe), None).version)
    assert found[0] and found[0] == found[1] != found[2]
