"""Public data sets become reliable folders: checked rows, no duplicates, no overlap, checksums."""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from interplay import envs
from interplay.envs.tasks import prepare as preparing
from interplay.envs.tasks.data import MANIFEST, DataEnv, Prepared, formats
from interplay.envs.tasks.prepare import prepare
from interplay.errors import ConfigError, DataError

DATA = Path(os.environ["INTERPLAY_DATA"]) if os.environ.get("INTERPLAY_DATA") else None
real = pytest.mark.skipif(DATA is None, reason="INTERPLAY_DATA names no folder of real samples")
SOURCE = Path(__file__).parents[3] / "src"
LONG = "one two three four five six seven eight nine ten eleven twelve thirteen"


def lines(file: Path, rows: list[Any]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def gsm8k(question: str, answer: str = "so\n#### 7") -> dict[str, str]:
    return {"question": question, "answer": answer}


def test_a_folder_and_back(tmp_path: Path) -> None:
    """Rows, counts and checksums; the same source gives the same bytes; a task contains its row."""
    lines(tmp_path / "raw/train.jsonl", [gsm8k(f"What is {n}?", f"#### 1,00{n}") for n in range(9)])
    lines(tmp_path / "raw/test.jsonl", [gsm8k("And what is this?")])
    report = prepare("gsm8k", tmp_path / "raw", tmp_path / "a", holdout=0)
    prepare("gsm8k", tmp_path / "raw", tmp_path / "b", holdout=0)
    assert report.counts == {"train": 9, "test": 1}
    assert {f.name: f.read_bytes() for f in (tmp_path / "a").iterdir()} == {
        f.name: f.read_bytes() for f in (tmp_path / "b").iterdir()
    }
    manifest = json.loads((tmp_path / "a" / MANIFEST).read_text())
    assert manifest["licence"] == "MIT" and manifest["splits"]["train"]["rows"] == 9
    assert Prepared.open(tmp_path / "a").rows("train")[3] == {
        "id": "train-4",
        "question": "What is 3?",
        "answer": "1003",
    }
    options = {"data": str(tmp_path / "a"), "team": "single"}
    once = [envs.sample_task("math", options, index=n).data["row"]["id"] for n in range(9)]
    again = [envs.sample_task("math", options, index=n).data["row"]["id"] for n in range(9, 18)]
    assert sorted(once) == sorted(again) == [f"train-{n + 1}" for n in range(9)] and once != again
    assert [envs.sample_task("math", options, "test", n).data["row"]["id"] for n in range(2)] == ["test-1"] * 2


def test_every_kind_of_file(tmp_path: Path) -> None:
    """jsonl, json, a list under a name, gzip, csv and parquet give the same rows."""
    row = {"premise": "A dog runs.", "hypothesis": "It moves.", "gold_label": "entailment"}
    lines(tmp_path / "a/dev.jsonl", [row])
    for name, content in (("b/dev.json", [row]), ("c/dev.json", {"data": [row]})):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(json.dumps(content))
    (tmp_path / "d").mkdir()
    (tmp_path / "d/dev.jsonl.gz").write_bytes(gzip.compress(json.dumps(row).encode()))
    (tmp_path / "e").mkdir()
    (tmp_path / "e/dev.csv").write_text("premise,hypothesis,gold_label\nA dog runs.,It moves.,entailment\n")
    kinds = "abcde"
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        pass
    else:
        (tmp_path / "f").mkdir()
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row]), tmp_path / "f/dev.parquet")
        kinds += "f"
    for kind in kinds:
        assert prepare("snli", tmp_path / kind, tmp_path / "out" / kind).counts == {"validation": 1}, kind
    assert len({(tmp_path / "out" / kind / "validation.jsonl").read_bytes() for kind in kinds}) == 1


@pytest.mark.parametrize(
    ("name", "row", "says"),
    [
        ("gsm8k", {"question": "x"}, "row 2 is not a row of gsm8k: answer is missing; expected a string"),
        ("gsm8k", {"question": 3, "answer": "#### 1"}, "row 2 is not a row of gsm8k: question is 3; expected a string"),
        ("gsm8k", gsm8k("x", "seven"), "row 2 is not a row of gsm8k: answer has no final '#### N'"),
        ("gsm8k", ["x"], "row 2 is list; expected an object"),
        ("snli", {"premise": "a", "hypothesis": "b", "label": "maybe"}, "row 2 is not a row of snli: label is 'maybe'"),
        ("aime", {"problem": "x", "answer": "1000"}, "row 2 is not a row of aime: answer is '1000'; expected a whole"),
        ("hotpotqa", {"question": "q", "answer": "a"}, "row 2 is not a row of hotpotqa: context and supporting_facts"),
        ("musique", {"id": "1", "question": "q", "answer": "a", "paragraphs": [{"title": "t"}]}, "paragraph_text"),
    ],
)  # fmt: skip
def test_a_bad_row_is_named(tmp_path: Path, name: str, row: Any, says: str) -> None:
    good: dict[str, Any] = {
        "gsm8k": gsm8k("fine"),
        "snli": {"premise": "a", "hypothesis": "b", "label": "neutral"},
        "aime": {"problem": "p", "answer": 12},
        "hotpotqa": {"id": "1", "question": "q", "answer": "a", "context_passages": []},
        "musique": {"id": "0", "question": "p", "answer": "a", "paragraphs": []},
    }[name]
    file = lines(tmp_path / "train.jsonl", [good, row])
    with pytest.raises(DataError) as error:
        prepare(name, file, tmp_path / "out")
    assert str(error.value).startswith("train.jsonl row 2") and says in str(error.value)
    assert not (tmp_path / "out").exists() and sorted(p.name for p in tmp_path.iterdir()) == ["train.jsonl"]


def test_broken_json_and_other_mistakes(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text('{"question": \n')
    with pytest.raises(DataError, match=r"train.jsonl row 1 is not JSON"):
        prepare("gsm8k", tmp_path / "train.jsonl", tmp_path / "out")
    with pytest.raises(ConfigError, match="does not exist; expected a file of gsm8k"):
        prepare("gsm8k", tmp_path / "nowhere", tmp_path / "out")
    with pytest.raises(ConfigError, match="Did you mean 'gsm8k'"):
        prepare("gsm8", tmp_path, tmp_path / "out")
    with pytest.raises(ConfigError, match="does not tell its split"):
        prepare("gsm8k", lines(tmp_path / "rows.jsonl", [gsm8k("q")]), tmp_path / "out")
    with pytest.raises(ConfigError, match="already exists"):
        prepare("gsm8k", lines(tmp_path / "test.jsonl", [gsm8k("q")]), tmp_path)


def test_equal_rows_are_kept_once(tmp_path: Path) -> None:
    rows = [gsm8k("Same   question?"), gsm8k("same question?"), gsm8k("Same question?", "#### 8"), gsm8k("other")]
    report = prepare("gsm8k", lines(tmp_path / "train.jsonl", rows), tmp_path / "out", holdout=0)
    assert report.counts == {"train": 2}
    assert report.dropped["duplicates"] == 1 and report.dropped["duplicates_that_differ"] == 1


def test_overlap_is_refused_with_the_rows_by_name(tmp_path: Path) -> None:
    """A row that equals a test row, or has thirteen consecutive words in common, is refused; twelve words are allowed;
    --drop-overlap leaves such rows out."""
    train = [gsm8k("Equal one"), gsm8k(f"Now {LONG}, then."), gsm8k(LONG.rpartition(" ")[0]), gsm8k("Fine")]
    lines(tmp_path / "raw/train.jsonl", train)
    lines(tmp_path / "raw/test.jsonl", [gsm8k("Quite another"), gsm8k("equal ONE"), gsm8k(f"{LONG}?")])
    with pytest.raises(DataError) as error:
        prepare("gsm8k", tmp_path / "raw", tmp_path / "out")
    told = str(error.value)
    assert "1 equal one and 1 share 13 consecutive words" in told and "--drop-overlap" in told
    assert "train.jsonl row 1 equals test.jsonl row 2" in told
    assert "train.jsonl row 2 shares words with test.jsonl row 3" in told
    report = prepare("gsm8k", tmp_path / "raw", tmp_path / "out", drop_overlap=True, holdout=0)
    assert report.counts == {"train": 2, "test": 3}
    assert report.dropped["overlap_equal"] == 1 and report.dropped["overlap_13_words"] == 1


def test_another_data_set_can_be_held_out_too(tmp_path: Path) -> None:
    """MATH is not trained on the rows of MATH-500, if that is the test."""
    problem = {"problem": "Find x", "answer": "1"}
    prepare("math500", lines(tmp_path / "math500.jsonl", [problem]), tmp_path / "math500")
    train = lines(tmp_path / "train.jsonl", [problem, {"problem": "Find y", "solution": "so \\boxed{\\frac{1}{2}}."}])
    with pytest.raises(DataError, match=r"train.jsonl row 1 equals .*math500 test test-1"):
        prepare("math", train, tmp_path / "math", [tmp_path / "math500"])
    report = prepare("math", train, tmp_path / "math", [tmp_path / "math500"], drop_overlap=True, holdout=0)
    assert (
        report.counts == {"train": 1} and Prepared.open(tmp_path / "math").rows("train")[0]["answer"] == "\\frac{1}{2}"
    )
    both = {"data": {"train": str(tmp_path / "math"), "test": str(tmp_path / "math500")}, "team": "single"}
    assert envs.sample_task("math", both, "test").data["row"]["question"] == "Find x"
    with pytest.raises(ConfigError, match="names no folder for the validation split; it only has: train, test"):
        envs.sample_task("math", both, "validation")


def test_validation_is_taken_from_train_by_text(tmp_path: Path) -> None:
    rows = [gsm8k(f"Question number {n}") for n in range(2_000)]
    one = prepare("gsm8k", lines(tmp_path / "a/train.jsonl", rows), tmp_path / "one", holdout=0.1)
    prepare("gsm8k", lines(tmp_path / "b/train.jsonl", rows[::-1]), tmp_path / "two", holdout=0.1)
    assert 150 < one.held_out < 250 and one.counts == {"train": 2_000 - one.held_out, "validation": one.held_out}
    held = [{r["question"] for r in Prepared.open(tmp_path / n).rows("validation")} for n in ("one", "two")]
    assert held[0] == held[1]


def test_a_folder_that_is_missing_changed_or_of_another_kind(tmp_path: Path) -> None:
    """Each gives a sentence that says what to do."""
    missing = str(tmp_path / "gsm8k")
    with pytest.raises(ConfigError, match=rf"interplay prepare gsm8k --to {missing}"):
        envs.sample_task("math", {"data": missing})
    prepare("gsm8k", lines(tmp_path / "test.jsonl", [gsm8k("q")]), tmp_path / "gsm8k")
    with pytest.raises(ConfigError, match="has no train split"):
        envs.sample_task("math", {"data": missing})
    with pytest.raises(ConfigError, match="kind 'math'; expected the kind 'inference'"):
        envs.sample_task("nli", {"data": missing}, "test")
    with (tmp_path / "gsm8k/test.jsonl").open("a") as file:
        file.write(json.dumps({"id": "x", "question": "slipped in", "answer": "1"}) + "\n")
    with pytest.raises(DataError, match=r"not what manifest.json says it is; prepare it again"):
        envs.sample_task("math", {"data": missing}, "test")


def test_the_hub_is_read_through_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real loader, with a data set on disk; without the package or the network there is a sentence."""
    pytest.importorskip("datasets")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    lines(tmp_path / "set/train.jsonl", [gsm8k("From the hub")])
    monkeypatch.setattr(formats()["gsm8k"], "hub", {"train": (str(tmp_path / "set"), None, "train")})
    report = prepare("gsm8k", None, tmp_path / "out", holdout=0)
    assert report.counts == {"train": 1} and report.source.startswith("hub:")
    files: list[tuple[str, dict[str, str]]] = []
    load = sys.modules["datasets"].load_dataset

    def by_file(kind: str, data_files: str, split: str) -> Any:
        files.append((kind, {"data_files": data_files, "split": split}))
        return load(kind, data_files=str(tmp_path / "set/train.jsonl"), split=split)

    with monkeypatch.context() as patch:
        patch.setattr("datasets.load_dataset", by_file)
        patch.setattr(formats()["gsm8k"], "hub", {"train": ("someone/set", None, "train*.jsonl")})
        assert prepare("gsm8k", None, tmp_path / "files", holdout=0).counts == {"train": 1}
    assert files == [("json", {"data_files": "hf://datasets/someone/set/train*.jsonl", "split": "train"})]
    monkeypatch.setattr(formats()["gsm8k"], "hub", {"train": (str(tmp_path / "nothing"), None, "train")})
    with pytest.raises(DataError, match=r"could not be read from the hub .* --from PATH"):
        prepare("gsm8k", None, tmp_path / "other")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ConfigError, match=r"interplay\[data\]"):
        prepare("gsm8k", None, tmp_path / "other")


def test_public_forms_of_hotpotqa_and_musique(tmp_path: Path) -> None:
    """As published, as on the hub, and with a corpus beside it; duplicate passages are removed."""
    asked = {"question": "Who?", "answer": "Ann", "type": "bridge"}
    published = {
        **asked,
        "_id": "1",
        "supporting_facts": [["B", 0]],
        "context": [["A", ["One. ", "Two."]], ["B", ["Ann."]]],
    }
    hub = {
        **asked, "id": "2", "question": "Whom?", "supporting_facts": {"title": ["B"], "sent_id": [0]},
        "context": {"title": ["B", "C"], "sentences": [["Ann."], ["Three."]]},
    }  # fmt: skip
    prepare("hotpotqa", lines(tmp_path / "dev.jsonl", [published, hub]), tmp_path / "out")
    found = Prepared.open(tmp_path / "out")
    assert [p["title"] for p in found.table("corpus")] == ["A", "B", "C"]
    first, second = found.rows("test")
    assert (first["passages"], first["gold"], second["passages"], second["gold"]) == ([0, 1], [1], [1, 2], [1])
    lines(
        tmp_path / "raw/corpus.jsonl",
        [{"title": "A", "text": "x"}, {"title": "A", "text": "x"}, {"title": "B", "text": "y"}],
    )
    row = {**asked, "id": "3", "gold_passages": [2], "context_passages": [0, 1, 2]}
    lines(tmp_path / "raw/test.jsonl", [row])
    prepare("hotpotqa", tmp_path / "raw", tmp_path / "places")
    (row,) = Prepared.open(tmp_path / "places").rows("test")
    assert row["passages"] == [0, 1] and row["gold"] == [1]
    lines(tmp_path / "raw/test.jsonl", [{**asked, "id": "4", "context_passages": [7]}])
    with pytest.raises(DataError, match="names a passage that the corpus of 3 does not have"):
        prepare("hotpotqa", tmp_path / "raw", tmp_path / "bad")
    hops = {
        "id": "m", "question": "Where?", "answer": "Rome", "answer_aliases": ["Roma"],
        "paragraphs": [{"idx": 0, "title": "A", "paragraph_text": "In Rome.", "is_supporting": True}],
    }  # fmt: skip
    report = prepare(
        "musique", lines(tmp_path / "musique_dev.jsonl", [hops, hops | {"answerable": False}]), tmp_path / "m"
    )
    assert report.dropped["unusable"] == 1
    assert Prepared.open(tmp_path / "m").rows("test")[0]["answers"] == ["Rome", "Roma"]


def test_fever_as_published_and_as_the_hub_has_it(tmp_path: Path) -> None:
    """On the hub `premise` is the claim; rows with hidden labels are left out; the dev rows are the test rows."""
    published = {"cid": 1, "query": "Ann sings.", "context": "Ann is a singer.", "label": "SUPPORTS"}
    lines(tmp_path / "a/dev_fitems.jsonl", [published])
    lines(tmp_path / "a/test_fitems.jsonl", [{**published, "query": "Ben sings.", "label": "hidden"}])
    hub = {"premise": "Ann sings.", "hypothesis": "Ann is a singer.", "fever_gold_label": "SUPPORTS", "label": 0}
    lines(tmp_path / "b/dev.jsonl", [hub])
    for source in "ab":
        report = prepare("fever", tmp_path / source, tmp_path / "out" / source)
        assert report.counts == {"test": 1}
        (row,) = Prepared.open(tmp_path / "out" / source).rows("test")
        assert (row["premise"], row["hypothesis"]) == ("Ann is a singer.", "Ann sings.")
        assert row["label"] == "entailment"


def test_published_folders(tmp_path: Path) -> None:
    """MATH (a file for each problem), Spider and BIRD (beside schemas, tables and databases)."""
    for split in ("train", "test"):
        (tmp_path / f"MATH/{split}/algebra").mkdir(parents=True)
        raw = {"problem": f"What is {split}?", "level": "Level 2", "type": "Algebra", "solution": r"So \boxed{4}."}
        (tmp_path / f"MATH/{split}/algebra/1.json").write_text(json.dumps(raw))
    assert prepare("math", tmp_path / "MATH", tmp_path / "math", holdout=0).counts == {"train": 1, "test": 1}
    for name, files in (
        ("spider", ("train_spider.json", "train_others.json", "dev.json", "tables.json", "database/pets/pets.sqlite")),
        ("bird", ("train/train.json", "dev/dev.json", "dev/dev_tables.json", "dev/dev_databases/pets/pets.sqlite",
                  "dev/dev_databases/pets/database_description/pets.csv")),
    ):  # fmt: skip
        for n, file in enumerate(files):
            (tmp_path / name / file).parent.mkdir(parents=True, exist_ok=True)
            asked = {"db_id": "pets", "question": f"Question {n}?", "query": "SELECT 1", "SQL": "SELECT 1"}
            other = [{"db_id": "pets", "table_names": []}]
            (tmp_path / name / file).write_text(json.dumps(other if "table" in file else [asked]))
        report = prepare(name, tmp_path / name, tmp_path / "out" / name, holdout=0, check=False)
        assert report.counts == {"train": 2 if name == "spider" else 1, "test": 1}
        assert Prepared.open(tmp_path / "out" / name).file("pets.sqlite").is_file()


def test_rows_of_one_id_are_one_row(tmp_path: Path) -> None:
    """MBPP in full and sanitized, in one folder: a reworded problem is still the same problem."""
    made = {"code": "def f(x):\n    return x", "test_list": ["assert f(1) == 1"]}
    lines(tmp_path / "raw/mbpp.jsonl", [{"task_id": 11, "text": "Give it back.", **made}])
    (tmp_path / "raw/sanitized-mbpp.json").write_text(json.dumps([{"task_id": 11, "prompt": "Return it.", **made}]))
    report = prepare("mbpp", tmp_path / "raw", tmp_path / "out")
    assert report.counts == {"test": 1} and report.dropped["duplicates_that_differ"] == 1


def test_every_format_says_what_it_is() -> None:
    assert {
        "gsm8k",
        "math",
        "math500",
        "aime",
        "amc",
        "olympiadbench",
        "anli",
        "snli",
        "fever",
        "hotpotqa",
        "musique",
    } <= {*formats()}
    for name, cls in formats().items():
        assert cls.__doc__ and cls.licence and cls.kind and not cls.__abstractmethods__, name


def test_the_command(tmp_path: Path) -> None:
    """It lists, prepares, and says what it left out; a mistake is one sentence."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        code = "from interplay.cli.main import main; main()"
        return subprocess.run(
            [sys.executable, "-c", code, *words], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(SOURCE)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    lines(tmp_path / "raw/train.jsonl", [gsm8k("Equal one"), gsm8k("Fine"), gsm8k("Also fine")])
    lines(tmp_path / "raw/test.jsonl", [gsm8k("Equal one")])
    refused = run("prepare", "gsm8k", "--from", "raw")
    assert refused.returncode == 1 and refused.stderr.startswith("error: the training rows of gsm8k overlap")
    done = run("prepare", "gsm8k", "--from", "raw", "--drop-overlap", "--holdout", "0")
    assert done.returncode == 0 and "data/gsm8k: 2 train, 1 test rows" in done.stdout
    assert "left out: 1 overlap equal" in done.stdout
    assert "olympiadbench" in run("prepare").stdout


# -- the real samples -------------------------------------------------------------------------------------------------


@real
@pytest.mark.parametrize(
    ("name", "folder", "counts", "env"),
    [
        ("gsm8k", "gsm8k", {"train": 7469, "test": 1319}, "math"),
        ("math", "math_train", {"train": 7469}, "math"),
        ("olympiadbench", "olympiadbench", {"test": 675}, "math"),
        ("anli", "anli_NC", {"train": 440, "validation": 3200}, "nli"),
        ("snli", "snli", {"validation": 5998}, "nli"),
        ("hotpotqa", "hotpotqa", {"test": 497}, "search"),
    ],
)
def test_real_samples(tmp_path: Path, name: str, folder: str, counts: dict[str, int], env: str) -> None:
    """All rows can be read, and the scripted team earns the full score on the first ones."""
    assert DATA is not None
    report = prepare(name, DATA / folder, tmp_path / name, drop_overlap=True, holdout=0)
    assert report.counts == counts
    split = list(counts)[-1]
    options = {"data": str(tmp_path / name), **({"team": "single"} if env == "math" else {})}
    options |= {"searches": 4, "results": 5} if env == "search" else {}
    for n in range(25):
        played = envs.make(envs.sample_task(env, options, split, n))
        assert isinstance(played, DataEnv)
        while seen := played.observe():
            played.step({role: played.script(role) for role in seen})
        (reward,) = [r for r in played.outcome() if r.name == "correct"]
        assert reward.value == 1.0, played.state()


@real
def test_the_overlap_of_the_real_samples_is_found() -> None:
    assert DATA is not None
    with pytest.raises(
        DataError,
        match=r"0 equal one and 4 share 13 consecutive words .*train.jsonl row 21 shares words with test.jsonl",
    ):
        preparing.prepare("gsm8k", DATA / "gsm8k", Path("never-written"))
    assert not Path("never-written").exists()


ROW = b'{"question": "Why?", "answer": "#### 7"}\n'
PACKED = gzip.compress(ROW * 50, mtime=0)


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("train.jsonl", '{"question": "Caf\xe9?", "answer": "#### 7"}'.encode("latin-1"), r"is not text in UTF-8"),
        ("train.jsonl", ROW.decode().encode("utf-16"), r"is not text in UTF-8"),
        ("train.jsonl", ROW + b"[" * 200_000, r"train.jsonl row 2 is not JSON"),
        ("train.jsonl", b'{"question": ' + b"9" * 5000 + b"}", r"train.jsonl row 1 is not JSON"),
        ("train.jsonl", ROW + b"[1]\n", r"train.jsonl row 2 is list; expected an object"),
        ("train.json", b'["Why?"]', r"train.json row 1 is str; expected an object"),
        ("train.json", b"[" * 200_000, r"train.json is not JSON"),
        ("train.jsonl", b'{"question": "a \\ud800 b", "answer": "#### 7"}', r"'.ud800', which is half of a char"),
        ("train.jsonl.gz", PACKED[:-12], r"train.jsonl.gz is damaged \(Compressed file ended"),
        ("train.jsonl.gz", PACKED[:30] + bytes(9) + PACKED[39:], r"train.jsonl.gz is damaged \("),
        ("train.jsonl.gz", ROW, r"train.jsonl.gz is damaged \(Not a gzipped file"),
        ("train.jsonl", b'{"question": " ", "answer": "#### 7"}', r"has no usable row"),
        ("contest.jsonl", ROW, r"'contest.jsonl' does not tell its split"),
        ("latest/rows.jsonl", ROW, r"rows.jsonl' does not tell its split"),
    ],
)
def test_a_damaged_file_is_one_sentence(tmp_path: Path, name: str, content: bytes, why: str) -> None:
    file = tmp_path / "raw" / name
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    with pytest.raises((DataError, ConfigError), match=why):
        prepare("gsm8k", tmp_path / "raw", tmp_path / "out")
    assert [f.name for f in tmp_path.iterdir()] == ["raw"], "nothing half written stays"


def test_damaged_parquet_and_packed_tests(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "train.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match=r"train.parquet is damaged"):
        prepare("gsm8k", tmp_path / "train.parquet", tmp_path / "out")
    row = {"question_content": "x", "public_test_cases": "[]", "private_test_cases": "AAAA"}
    with pytest.raises(DataError, match=r"row 1 is not a row of livecodebench"):
        prepare("livecodebench", lines(tmp_path / "test.jsonl", [row]), tmp_path / "out")


def test_a_mark_at_the_beginning_and_wide_fields_are_no_damage(tmp_path: Path) -> None:
    (tmp_path / "a.train.jsonl").write_bytes(b"\xef\xbb\xbf" + ROW)
    assert prepare("gsm8k", tmp_path / "a.train.jsonl", tmp_path / "a", holdout=0).counts == {"train": 1}
    wide = f"premise,hypothesis,gold_label\n{'A dog runs. ' * 20_000},It moves.,entailment\n"
    (tmp_path / "dev.csv").write_bytes(b"\xef\xbb\xbf" + wide.encode())
    assert prepare("snli", tmp_path / "dev.csv", tmp_path / "b").counts == {"validation": 1}


@pytest.mark.parametrize(
    "train",
    [
        LONG.replace(" ", " - "),
        LONG.replace("one", "**one**").replace("five", "_five_"),
        LONG.replace("eleven", "\uff45leven"),  # a wide e
    ],
)
def test_words_are_the_same_however_they_are_set(tmp_path: Path, train: str) -> None:
    lines(tmp_path / "raw/train.jsonl", [gsm8k(f"Say {train} now.")])
    lines(tmp_path / "raw/test.jsonl", [gsm8k(f"Read {LONG} then.")])
    with pytest.raises(DataError, match=r"0 equal one and 1 share 13 consecutive words"):
        prepare("gsm8k", tmp_path / "raw", tmp_path / "out")


def test_one_question_over_two_tables_or_databases_is_two(tmp_path: Path) -> None:
    tables = [{"header": ["year", "winner"], "rows": [["2001", name]]} for name in ("Ann", "Bob", "Bob")]
    rows = [{"question": "Who won?", "answers": [t["rows"][0][1]], "table": t} for t in tables]
    report = prepare("wikitablequestions", lines(tmp_path / "train.jsonl", rows), tmp_path / "a", holdout=0)
    assert report.counts == {"train": 2} and report.dropped["duplicates"] == 1
    rows = [{"db": db, "question": "How many singers?", "gold_sql": ["select count(*) from s"]} for db in "aab"]
    assert prepare("defog", lines(tmp_path / "b/test.jsonl", rows), tmp_path / "c", check=False).counts == {"test": 2}


def test_another_kind_of_data_set_may_be_held_against(tmp_path: Path) -> None:
    """Each row is compared as its own format says; the option of a folder that is not prepared is named."""
    held = {"premise": f"{LONG} at noon.", "hypothesis": "It is late.", "gold_label": "neutral"}
    prepare("snli", lines(tmp_path / "snli/test.jsonl", [held]), tmp_path / "held")
    source = lines(tmp_path / "train.jsonl", [gsm8k(f"Say {LONG} now."), gsm8k("Why?")])
    with pytest.raises(
        DataError, match=r"share 13 consecutive words with one \(train.jsonl row 1 shares words with .*held"
    ):
        prepare("gsm8k", source, tmp_path / "out", [tmp_path / "held"])
    with pytest.raises(ConfigError, match=r"--against is '.*nowhere', which is not a prepared data set"):
        prepare("gsm8k", source, tmp_path / "out", [tmp_path / "nowhere"])
    manifest = json.loads((tmp_path / "held" / MANIFEST).read_text())
    (tmp_path / "held" / MANIFEST).write_text(json.dumps({**manifest, "splits": {"test": 3}}))
    with pytest.raises(DataError, match=r"is not a manifest of interplay prepare"):
        prepare("gsm8k", source, tmp_path / "out", [tmp_path / "held"])


def mbpp(number: int, code: str, *tests: str) -> dict[str, Any]:
    return {"task_id": number, "text": f"Problem {number}.", "code": code, "test_list": list(tests)}


def test_a_golden_program_that_fails_its_own_tests_is_left_out_and_counted(tmp_path: Path) -> None:
    """Audit B6: golden programs were not run. One compares floats exactly, one is too slow, one is right."""
    rows = [
        mbpp(601, "def third(x):\n    return x * (1 / 3)", "assert third(3) == 1.0", "assert third(0.3) == 0.1"),
        mbpp(602, "def wait(x):\n    while True:\n        x += 1", "assert wait(0) == 1", "assert wait(2) == 3"),
        mbpp(603, "def twice(x):\n    return 2 * x", "assert twice(1) == 2", "assert twice(4) == 8"),
    ]
    report = prepare("mbpp", lines(tmp_path / "rows.jsonl", rows), tmp_path / "out", holdout=0)
    assert report.counts == {"train": 1} and report.dropped["gold_answer_fails"] == 2 and report.unchecked == 0
    manifest = json.loads((tmp_path / "out" / MANIFEST).read_text())
    assert manifest["dropped"] == {"gold_answer_fails": 2} and manifest["unchecked"] == 0
    assert [row["id"] for row in Prepared.open(tmp_path / "out").rows("train")] == ["mbpp-603"]
    kept = prepare("mbpp", lines(tmp_path / "rows.jsonl", rows), tmp_path / "all", holdout=0, check=False)
    assert kept.counts == {"train": 3} and kept.unchecked == 3


def test_a_gold_query_that_fails_or_says_nothing_is_left_out(tmp_path: Path) -> None:
    """Similar to audit B6: every kind of gold answer is checked by its own checker."""
    (tmp_path / "raw").mkdir()
    with closing(sqlite3.connect(tmp_path / "raw" / "pets.sqlite")) as db:
        db.executescript("CREATE TABLE pet (id INTEGER PRIMARY KEY, name TEXT, age INTEGER);")
        db.executemany("INSERT INTO pet VALUES (?, ?, ?)", [(i, f"pet {'abcdefgh'[i]}", i * i) for i in range(8)])
        db.commit()
    golds = ["SELECT name FROM pet WHERE age > 9", "SELECT nam FROM pet", "SELECT 5", "SELECT max(age) FROM pet"]
    rows = [{"db": "pets", "question": f"Question {n}?", "gold_sql": [gold]} for n, gold in enumerate(golds)]
    lines(tmp_path / "raw" / "test.jsonl", rows)
    report = prepare("defog", tmp_path / "raw", tmp_path / "out")
    assert report.counts == {"test": 2} and report.dropped["gold_answer_fails"] == 2


def test_a_row_without_a_golden_program_is_kept_and_counted(tmp_path: Path) -> None:
    rows = [{"problem": "Double.", "tests": [{"input": "1", "output": "2"}]}]
    report = prepare("codecontests", lines(tmp_path / "test.jsonl", rows), tmp_path / "out")
    assert report.counts == {"test": 1} and report.unchecked == 1


def test_a_bug_that_changes_nothing_is_left_out(tmp_path: Path) -> None:
    test = "def check(candidate):\n    assert candidate(1) == 2\n    assert candidate(5) == 6"
    raw = {"declaration": "def up(n):\n", "entry_point": "up", "canonical_solution": "    return n + 1\n", "test": test}
    bugs = ["    return n + 2\n", "    return 1 + n\n"]
    rows = [{**raw, "buggy_solution": b, "prompt": f'def up(n):\n    """{i}"""\n'} for i, b in enumerate(bugs)]
    report = prepare("humanevalfix", lines(tmp_path / "test.jsonl", rows), tmp_path / "out")
    assert report.counts == {"test": 1} and report.dropped["bug_that_changes_nothing"] == 1


CHECKER = """
def check(input, expected, actual):
    number = int(input)
    words = actual.split()
    return len(words) == 2 and all(w.isdecimal() for w in words) and sum(map(int, words)) == number
"""
SPLIT = {
    "problem": "Print two whole numbers, not negative, whose sum is n.",
    "tests": [{"input": f"{n}\n", "output": f"0 {n}\n"} for n in (3, 8, 20)],
}


@pytest.mark.parametrize(
    ("printed", "right"),
    [("0, n", True), ("n, 0", True), ("n // 2, n - n // 2", True), ("n, n", False), ("n", False), ("-1, n + 1", False)],
)
def test_a_problem_with_several_right_outputs_can_have_its_own_checker(
    tmp_path: Path, printed: str, right: bool
) -> None:
    """Without a checker only the published output counts, and every other right program is refused."""
    program = f"```python\nn = int(input())\nprint({printed})\n```"
    for checker, wanted in ((CHECKER, right), ("", printed == "0, n")):
        folder = tmp_path / ("with" if checker else "without")
        prepare("codecontests", lines(tmp_path / "test.jsonl", [{**SPLIT, "checker": checker}]), folder)
        env = envs.make(envs.sample_task("code", {"team": "single", "data": str(folder)}, "test"))
        env.step({"coder": program})
        assert {r.name: r.value for r in envs.outcome_of(env)}["solved"] == float(wanted)
