"""`interplay cluster plan`: computes which processes a run would start and what each of them needs. Starts none."""

from __future__ import annotations

from dataclasses import dataclass

from interplay.models.device import wanted_device
from interplay.seats import RunPlan
from interplay.training.memory import estimate


@dataclass(frozen=True)
class ProcessPlan:
    """Processes of one kind. `memory` is the bytes that each process needs for models: on its GPUs if it has any, else
    on the host."""

    what: str
    count: int
    cpus: float
    gpus: float
    memory: int


def trained_models(plan: RunPlan) -> int:
    """The number of models that are trained. Policies that are adapters on one base train one model."""
    return len({p.base if p.adapter else n for n, p in plan.recipe.policies.items() if n in plan.trainable})


def layout(plan: RunPlan) -> list[ProcessPlan]:
    """Return the processes that a recipe would start, with the memory of each."""
    recipe, cluster = plan.recipe, plan.recipe.cluster
    needs, gpu = estimate(plan), wanted_device(plan.recipe) == "cuda"
    parts = dict(needs.parts)
    playing = parts["weights"] + needs.cache
    learning = sum(parts.values()) - parts["weights"]
    out: list[ProcessPlan] = []
    sharded = recipe.train.shard == "fsdp"
    served = recipe.engine.kind != "local"
    # The run's own process trains unless there are ranks, and samples unless there are vLLM servers.
    mine = parts["weights"] + (0 if sharded else learning) + (0 if served else needs.cache)
    alone = gpu and not (sharded and served)
    out.append(ProcessPlan("the run (tasks, credit, records)", 1, 1.0, float(alone), mine))
    models = len({p.base if p.adapter else name for name, p in recipe.policies.items() if not p.is_remote})
    trained = trained_models(plan)
    if sharded:
        passes = parts["activations"] + parts["logits"]
        whole = learning - passes
        share = whole if gpu else whole // cluster.learners  # on GPUs, the estimate is already that of one rank
        out.append(
            ProcessPlan("learner ranks", trained * cluster.learners, 1.0, float(gpu), share // max(1, trained) + passes)
        )
    if served and recipe.engine.url is None:
        gpus = float(recipe.engine.tensor_parallel) if gpu else 0.0
        out.append(
            ProcessPlan("vLLM servers", models * max(1, cluster.engines), 1.0, gpus, parts["weights"] // max(1, models))
        )
    if cluster.rollout_workers:
        loads = 0 if cluster.engines else playing  # if other processes sample, workers have no weights
        out.append(
            ProcessPlan("rollout workers", cluster.rollout_workers, cluster.worker_cpus, cluster.worker_gpus, loads)
        )
    if cluster.engines:
        out.append(ProcessPlan("engines", cluster.engines, 1.0, cluster.engine_gpus, playing))
    return out
