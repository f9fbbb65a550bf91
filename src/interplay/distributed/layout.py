"""`interplay cluster plan`: computes which processes a run would start and what each of them needs. Starts none."""

from __future__ import annotations

from dataclasses import dataclass

from interplay.models.device import wanted_device
from interplay.seats import RunPlan
from interplay.training.memory import estimate, playing


@dataclass(frozen=True)
class ProcessPlan:
    """Processes of one kind. `memory` is the bytes that each process needs for models: on its GPUs if it has any, else
    on the host. `shared` GPUs are also those of the row after this one."""

    what: str
    count: int
    cpus: float
    gpus: float
    memory: int
    shared: bool = False


def trained_models(plan: RunPlan) -> int:
    """The number of models that are trained. Policies that are adapters on one base train one model."""
    return len({p.base if p.adapter else n for n, p in plan.recipe.policies.items() if n in plan.trainable})


def layout(plan: RunPlan) -> list[ProcessPlan]:
    """Return the processes that a recipe would start, with the memory of each."""
    recipe, cluster = plan.recipe, plan.recipe.cluster
    needs, gpu = estimate(plan), wanted_device(plan.recipe) == "cuda"
    weights, cache = playing(plan)
    sharded = recipe.train.shard == "fsdp"
    servers = recipe.engine.kind != "local"
    served = servers and not cluster.engines  # else the run's own process evaluates with a local engine
    alone = gpu and not (sharded and served)
    mine, rank = dict(needs.parts), needs.rank
    if sharded and not rank:  # ranks that share the device of the run are counted there
        rank, mine = {name: mine[name] for name in mine if name != "weights"}, {"weights": mine["weights"]}
    own = sum(mine.values()) + (0 if served else needs.cache)
    own = own if alone or not gpu else weights  # in host memory
    together = alone and sharded and not needs.rank  # ranks that are child processes begin with the run's own GPU
    out = [ProcessPlan("the run (tasks, credit, records)", 1, 1.0, float(alone), own, together)]
    trained = trained_models(plan)
    if sharded:
        passes = rank["activations"] + rank["logits"]
        # On a CPU, the rest was counted for all ranks of all models; on shared GPUs, for one rank of each model.
        among = 1 if needs.rank else trained * (1 if gpu else cluster.learners)
        share = (sum(rank.values()) - passes) // max(1, among) + passes
        gpus = float(gpu) if needs.rank else gpu / max(1, trained)  # child processes of several models share GPUs
        out.append(ProcessPlan("learner ranks", trained * cluster.learners, 1.0, gpus, share))
    if served and recipe.engine.url is None:
        gpus = float(recipe.engine.tensor_parallel) if gpu else 0.0
        models = len({p.base if p.adapter else name for name, p in recipe.policies.items() if not p.is_remote})
        out.append(ProcessPlan("vLLM servers", models, 1.0, gpus, weights // max(1, models)))
    if cluster.rollout_workers:
        loads = 0 if cluster.engines else weights + cache  # if other processes sample, workers have no weights
        out.append(
            ProcessPlan("rollout workers", cluster.rollout_workers, cluster.worker_cpus, cluster.worker_gpus, loads)
        )
    if cluster.engines and not servers:
        out.append(ProcessPlan("engines", cluster.engines, 1.0, cluster.engine_gpus, weights + cache))
    elif cluster.engines:  # each has a copy of the weights, which it gives to its server; with ranks, on the host
        where, copies = ("with a server each", 2) if recipe.engine.url is None else ("on a server", 1)
        copies -= gpu and sharded
        out.append(ProcessPlan(f"engines ({where})", cluster.engines, 1.0, cluster.engine_gpus, copies * weights))
    return out
