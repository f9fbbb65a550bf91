"""Runs the benchmarks that need a GPU one after another, on a machine that is available only for minutes.

    python benchmarks/gpu.py --plan                                          the jobs, what each needs, and its time
    python benchmarks/gpu.py --minutes 25 --out FOLDER --given model=FOLDER data=FOLDER old=../old
    python benchmarks/gpu.py --minutes 25 --out FOLDER --only step decode    only these jobs, also if they are done

A job that needs something which is not given is left out, and so are jobs that an earlier call with the same FOLDER has
finished. No job begins if less than its time is left, and one that takes twice its time is stopped. Nothing else
should run on the machine: the jobs measure speed, except those at the end of the list, which train. Each job writes its
output to FOLDER/NAME.log and its table, if it makes one, to FOLDER/NAME.json; FOLDER/done.json says which jobs have
finished, how long they took, and for which commit.

What jobs need: `model` and `small` are folders of Qwen2.5-Coder-0.5B-Instruct and SmolLM2-135M-Instruct, `data` has the
rows that `interplay prepare gsm8k --drop-overlap` made (data/gsm8k), `gsm8k` is GSM8K as it is published, `preferences`
has hh_rlhf/ and mt_bench/ as they are published, `old` is a checkout of an older commit to compare with, `vllm` is a
folder that has vLLM, and `langgraph` is a Python that has LangGraph.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import string
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
KILL = 20.0  # seconds between the signal that ends a job and the one that kills it


@dataclass(frozen=True)
class Job:
    """`command` is a script of this folder with its arguments; {out} is the folder of the results, and {seconds} the
    time that the job may take."""

    name: str
    minutes: float
    command: str

    @property
    def needs(self) -> list[str]:
        named = {field for _, field, _, _ in string.Formatter().parse(self.command) if field}
        return sorted(named - {"out", "seconds"})


JOBS = (  # the most important first
    Job("replies", 3, "replies.py --requests 1000 --alone 100"),
    Job("step", 5, "end_to_end.py --model tiny-1024x12 --updates --old {old} --steps 26 --json {out}/step.json"),
    Job("decode", 1.5, "engine.py --shapes 0.5B --no-transformers --json {out}/decode.json"),
    Job("few_rows", 1.5, "decode_step.py --json {out}/decode_step.json"),
    Job("profile", 1, "engine.py --shapes 0.5B --profile --json {out}/profile.json"),
    Job("teams", 2, "teams.py --model {model} --data {data}/gsm8k --parts --json {out}/teams.json"),
    Job(
        "speculate",
        2.5,
        "speculate.py --model {model} --questions {gsm8k}/test.jsonl --seconds {seconds} --json {out}/speculate.json",
    ),
    Job("cold", 2, "end_to_end.py --model {model} --cold --trl-steps 0 --json {out}/cold.json"),
    Job("larger", 3, "engine.py --shapes 1.5B,7B --no-transformers --json {out}/larger.json"),
    Job("learner", 2.5, "learner.py --micro 16384,32768 --seconds {seconds} --json {out}/learner.json"),
    Job("vllm", 6, "engine.py --no-transformers --vllm --vllm-path {vllm} --json {out}/vllm.json"),
    Job("langgraph", 5, "gateway.py team --base {small} --task code --python {langgraph}"),
    Job(
        "folds",
        4,
        "judges.py folds --balance length --base {small} --data {preferences} --seeds 5 --minutes 3 "
        "--out {out}/folds.json",
    ),
    Job("evolve", 6, "evolve_math.py --base {model} --from {gsm8k} --seconds {seconds} --out {out}/evolve.json"),
    Job(
        "results",
        8,
        "results.py --model {model} --data {data} --jobs 3 --seconds {seconds} --out {out}/results "
        "--unpack {out}/results.tar.gz --pack {out}/results.tar.gz "
        "--changes memory.share=0.25 train.micro_batch_tokens=4096",
    ),
)


def due(job: Job, given: Mapping[str, str], done: Mapping[str, Any], only: list[str]) -> str:
    """Why a job is left out; empty if it is not."""
    if only:
        return "" if job.name in only else "not asked for"
    if job.name in done:
        return "done"
    missing = [name for name in job.needs if name not in given]
    return f"needs {', '.join(missing)}" if missing else ""


def run(job: Job, given: Mapping[str, str], out: Path, seconds: float) -> tuple[int, float]:
    """Run a job for at most `seconds`. Returns its exit code, and the seconds that it took."""
    script, *words = job.command.split()
    values = {**given, "out": str(out), "seconds": f"{60 * job.minutes * 0.8:.0f}"}
    command = [sys.executable, str(HERE / script), *(word.format(**values) for word in words)]
    began = time.monotonic()
    with (out / f"{job.name}.log").open("wb") as log:
        log.write((" ".join(command) + "\n").encode())
        log.flush()
        env = {**os.environ, "PYTHONUNBUFFERED": "1", "TQDM_DISABLE": "1"}
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=env, start_new_session=True)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            _end(process)
    return process.returncode, time.monotonic() - began


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a job and its processes. Training runs write a checkpoint first."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(KILL)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def commit() -> str:
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True)
    return found.stdout.strip() or "unknown"


def show(out: Path, job: Job, lines: int = 12) -> None:
    text = (out / f"{job.name}.log").read_text(encoding="utf-8", errors="replace").splitlines()
    print("\n".join(f"    {line[:200]}" for line in text[1:][-lines:]), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plan", action="store_true", help="print the jobs and stop")
    parser.add_argument("--minutes", type=float, default=25.0, help="begin nothing that takes longer than what is left")
    parser.add_argument("--out", type=Path, default=Path("runs/gpu"), help="folder of the results")
    parser.add_argument("--given", nargs="*", default=[], metavar="NAME=VALUE", help="what jobs need")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="run only these jobs")
    args = parser.parse_args()
    began, names = time.monotonic(), [job.name for job in JOBS]
    given = dict(word.partition("=")[::2] for word in args.given)
    known = {name for job in JOBS for name in job.needs}
    if wrong := [word for word in args.given if "=" not in word or word.partition("=")[0] not in known]:
        parser.error(f"--given has '{wrong[0]}'; expected NAME=VALUE with a name of {', '.join(sorted(known))}.")
    if wrong := [name for name in args.only if name not in names]:
        parser.error(f"--only has '{wrong[0]}'; expected names of {', '.join(names)}.")
    if missing := sorted({n for job in JOBS if job.name in args.only for n in job.needs} - set(given)):
        parser.error(f"these jobs need {', '.join(missing)}; give {missing[0]}=VALUE after --given.")
    record = args.out / "done.json"
    done: dict[str, Any] = json.loads(record.read_text()) if record.is_file() else {}
    for job in JOBS:
        why = due(job, given, done, args.only)
        left = args.minutes - (time.monotonic() - began) / 60
        if not why and left < job.minutes and not args.plan:
            why = f"takes {job.minutes:g} minutes, and {max(0.0, left):.1f} are left"
        print(f"{job.name:<10} {job.minutes:>4g} min  {why or job.command}", flush=True)
        if why or args.plan:
            continue
        args.out.mkdir(parents=True, exist_ok=True)
        code, seconds = run(job, given, args.out, 60 * min(left, 2 * job.minutes))
        print(f"  ended with exit code {code} after {seconds:.0f} s; the end of {args.out / job.name}.log:", flush=True)
        show(args.out, job)
        if code == 0:
            done[job.name] = {"seconds": round(seconds, 1), "commit": commit()}
            record.write_text(json.dumps(done, indent=1))


if __name__ == "__main__":
    main()
