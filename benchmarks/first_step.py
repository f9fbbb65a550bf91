"""Train one step of sums, and print when each part was done, in seconds since the program was started.

The program ends with the step: the checkpoint at the end of a run is not written.

    python benchmarks/first_step.py --model tiny --tokens 8 --tasks 4

Libraries are loaded as in `interplay train`. `benchmarks/end_to_end.py --cold` starts this program.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from pathlib import Path

RECIPE = Path(__file__).parents[1] / "recipes" / "sums" / "grpo.toml"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2", help="the model: a name or a folder")
    parser.add_argument("--tokens", type=int, default=128, help="the longest reply")
    parser.add_argument("--tasks", type=int, default=32, help="prompts in the step; each has 8 replies")
    parser.add_argument("--spawned", type=float, default=time.time(), help="when the program was started; default now")
    args = parser.parse_args()
    from interplay.cli.quiet import quiet_libraries

    quiet_libraries()
    from interplay.config import load
    from interplay.rollout.resolve import resolve
    from interplay.training.trainer import Observer, Trainer

    at = {"imported": time.time() - args.spawned}
    changes = [f'policies.solver.base="{args.model}"', "train.steps=2", f"sampling.max_tokens={args.tokens}"]
    changes += [f"rollout.tasks={args.tasks}", "records.tensorboard=off", "checkpoint.every=1000"]
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(resolve(load(RECIPE, changes)), Path(folder))
        at["loaded"] = time.time() - args.spawned

        def stepped(*_: object) -> None:
            at["stepped"] = time.time() - args.spawned
            print(json.dumps({**at, "cpu": time.process_time()}), flush=True)
            shutil.rmtree(folder)
            os._exit(0)

        trainer.observer = Observer(stepped=stepped)
        trainer.train()


if __name__ == "__main__":
    main()
