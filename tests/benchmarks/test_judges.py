"""The benchmark of judges runs through every part on small shapes, and a second call has nothing left to do."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("uvicorn")


def data(folder: Path) -> Path:
    """Rows in the public formats, made up."""
    for name in ("hh_rlhf", "mt_bench", "gsm8k"):
        (folder / name).mkdir(parents=True)
    talk = "\n\nHuman: Say {}.\n\nAssistant: {}"
    hh = [{"chosen": talk.format(i, "yes " * 3), "rejected": talk.format(i, "no")} for i in range(40)]
    (folder / "hh_rlhf" / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in hh))
    people = [{"input": f"Say {i}.", "output_1": "yes", "output_2": "no", "label": 1 + i % 2} for i in range(8)]
    (folder / "mt_bench" / "human_pairs.json").write_text(json.dumps(people))
    sums = [{"question": f"What is {i} + 1?", "answer": f"#### {i + 1}"} for i in range(40)]
    (folder / "gsm8k" / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in sums))
    return folder


@pytest.mark.slow
def test_every_part_runs_on_small_shapes(
    load_script: Callable[[str], ModuleType],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    script = load_script("benchmarks/judges.py")
    out = tmp_path / "judges.json"
    call = ["judges.py", "--tiny", "--data", str(data(tmp_path / "data")), "--seeds", "1", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", call)
    script.main()
    found = json.loads(out.read_text())
    assert set(found) == set(script.PARTS)
    assert found["bradley_terry"]["0"]["longer"] == 1.0 and found["server"]["0"]["replies_per_second"] > 0
    assert {"over_random", "auc_blank_balanced", "deviation_blank_balanced", "oracle"} <= set(found["verifier"]["0"])
    capsys.readouterr()
    script.main()
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 1 and said[0].startswith("folds: 1 of 5; right in "), said


def test_every_pair_is_held_out_by_one_fold(load_script: Callable[[str], ModuleType], tmp_path: Path) -> None:
    script = load_script("benchmarks/judges.py")
    args = argparse.Namespace(data=data(tmp_path), tiny=False, minutes=1.0, out=tmp_path / "none", base="", policy="")
    args.verifier, args.balance = None, "none"
    bench = script.Bench(args)
    splits = [bench.hh(fold, fold) for fold in range(script.FOLDS)]
    held = [pair.id for _, test in splits for pair in test]
    assert len(held) == len(set(held)) == len({pair.id for split in splits[0] for pair in split})
    for train, test in splits:
        assert train and not {pair.id for pair in train} & {pair.id for pair in test}


def test_folds_are_pooled_over_pairs(load_script: Callable[[str], ModuleType]) -> None:
    rows = [{"shorter_won": 0.5, "shorter_count": 100}, {"shorter_won": 0.7, "shorter_count": 300}]
    said = load_script("benchmarks/judges.py").pooled(rows)
    assert said == "folds: 2 of 5; right in 65.0% [60.2, 69.5] of the 400 pairs where the shorter reply won"
