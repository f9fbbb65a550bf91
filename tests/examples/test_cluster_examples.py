"""The recipes and scripts of examples/cluster: they are valid, their processes fit the machines, and jobs requeue."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from interplay.config import load
from interplay.distributed.layout import layout
from interplay.rollout.resolve import resolve

FOLDER = Path(__file__).parents[2] / "examples" / "cluster"


@pytest.mark.parametrize(("name", "gpus", "cpus"), [("one_node", 8, 64), ("eight_nodes", 64, 512)])
def test_a_recipe_uses_exactly_the_gpus_that_its_first_line_promises(name: str, gpus: int, cpus: int) -> None:
    cluster = resolve(load(FOLDER / f"{name}.toml")).recipe.cluster
    assert 1 + cluster.learners + cluster.engines * cluster.engine_gpus == gpus  # one for the process of the run
    assert cluster.learners + cluster.engines + cluster.rollout_workers * cluster.worker_cpus < cpus
    small = ["device=cpu", "policies.reasoner.base=tiny-16x1"]
    found = {row.what.split(" (")[0]: row.count for row in layout(resolve(load(FOLDER / f"{name}.toml", small)))}
    assert found == {
        "the run": 1, "learner ranks": cluster.learners, "rollout workers": cluster.rollout_workers,
        "engines": cluster.engines,
    }  # fmt: skip


def test_the_kubernetes_manifest_has_room_for_its_recipe() -> None:
    job = yaml.safe_load((FOLDER / "kuberay.yaml").read_text())
    assert job["kind"] == "RayJob" and "eight_nodes.toml" in job["spec"]["entrypoint"]
    (group,) = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    (pod,) = group["template"]["spec"]["containers"]
    cluster = load(FOLDER / "eight_nodes.toml").cluster
    gpus, cpus = (group["replicas"] * int(pod["resources"]["limits"][name]) for name in ("nvidia.com/gpu", "cpu"))
    assert cluster.learners + cluster.engines * cluster.engine_gpus <= gpus
    assert cluster.learners + cluster.engines + cluster.rollout_workers * cluster.worker_cpus <= cpus
    mounted = {mount["name"] for mount in pod["volumeMounts"]}
    assert mounted == {volume["name"] for volume in group["template"]["spec"]["volumes"]}


@pytest.mark.skipif(shutil.which("bash") is None, reason="the script is written for bash")
@pytest.mark.parametrize("code", [0, 75])
def test_the_slurm_job_starts_ray_everywhere_and_requeues_itself_after_a_checkpoint(tmp_path: Path, code: int) -> None:
    """With stand-ins for Slurm, Ray and the run."""
    tools, told, tokens = tmp_path / "tools", tmp_path / "told", tmp_path / "tokens"
    tools.mkdir()
    token = f'echo "$RAY_AUTH_MODE $RAY_AUTH_TOKEN" >> {tokens}'
    commands = {
        "scontrol": f'echo "scontrol $@" >> {told}\n[ "$1" = show ] && printf "node1\\nnode2\\n"',
        "srun": f'{token}\necho "srun $CUDA_VISIBLE_DEVICES $@" >> {told}',
        "ray": f'echo "ray $@" >> {told}',
        "interplay": f'{token}\necho "interplay $@" >> {told}\nexit {code}',
    }
    for name, text in commands.items():
        (tools / name).write_text(f"#!/bin/bash\n{text}\n")
        (tools / name).chmod(0o755)
    env = {
        **os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "SLURM_JOB_ID": "17", "SLURM_JOB_NODELIST": "node[1-2]",
        "SLURM_JOB_NUM_NODES": "2", "SLURM_GPUS_ON_NODE": "4", "RAY_START_SECONDS": "0.2",
    }  # fmt: skip
    env.pop("CUDA_VISIBLE_DEVICES", None)
    command = ["bash", str(FOLDER / "slurm.sh"), "recipe.toml", "run"]
    assert subprocess.run(command, env=env, cwd=tmp_path, check=False).returncode == code
    until = time.monotonic() + 300
    while told.read_text().count("ray start") < 2 and time.monotonic() < until:
        time.sleep(0.05)  # both are started in the background
    lines = told.read_text().splitlines()
    assert any(line.startswith("srun 1,2,3 ") and "ray start --head" in line for line in lines)
    assert any(line.startswith("srun  --nodes=1 ") and "ray start --address=node1:6379" in line for line in lines)
    assert "interplay train recipe.toml --run run --resume cluster.address=node1:6379" in lines
    assert ("scontrol requeue 17" in lines) == (code == 75)
    known = tokens.read_text().splitlines()  # both parts of Ray and the run know the token of the job
    assert len(known) == 3 and len(set(known)) == 1 and re.fullmatch("token [0-9a-f]{64}", known[0])
