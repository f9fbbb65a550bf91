"""Checks that the learners, engines and rollout workers of a recipe can be placed in processes as it asks."""

from __future__ import annotations

from interplay.errors import ConfigError
from interplay.seats import RunPlan


def check_shard(plan: RunPlan) -> None:
    """Check that a sharded learner can do what the recipe asks for."""
    train, warmstart = plan.recipe.train, plan.recipe.warmstart
    if train.shard == "none":
        if plan.recipe.cluster.learners > 1:
            raise ConfigError(
                f"cluster.learners is {plan.recipe.cluster.learners}, but train.shard is 'none', so one process would "
                "train; expected train.shard = 'fsdp', or cluster.learners = 1."
            )
        if train.gather != "layer":
            raise ConfigError(
                f"train.gather is '{train.gather}', but train.shard is 'none', so no weights are gathered; expected "
                "train.shard = 'fsdp', or no train.gather."
            )
        return
    odd = {plan.settings(name).optimizer for name in plan.trainable} - {"adamw"}
    if odd:
        raise ConfigError(
            f"train.shard is 'fsdp', but optimizer '{odd.pop()}' works on whole tensors; expected 'adamw', "
            "whose state can be sharded."
        )
    if warmstart is not None and warmstart.base:
        raise ConfigError(
            "warmstart.base is true, but with train.shard = 'fsdp' only policies can imitate; expected false, or a "
            "base that a run without shards has made."
        )


def check_engine(plan: RunPlan) -> None:
    """Check that the engines of a recipe can be served by the servers and rollout workers it has."""
    recipe = plan.recipe
    cluster = recipe.cluster
    if cluster.address != "local" and not cluster.rollout_workers and recipe.train.shard == "none":
        raise ConfigError(
            f"cluster.address is '{cluster.address}', but nothing would run there; expected cluster.rollout_workers of "
            "at least 1 or train.shard = 'fsdp', or cluster.address = 'local'."
        )
    if cluster.rollout_workers:
        _check_workers(plan)
    elif cluster.engines:
        raise ConfigError(
            f"cluster.engines is {cluster.engines}, but they sample for rollout workers, and "
            "cluster.rollout_workers is 0; expected at least 1 worker, or no engines."
        )
    ours = [p for p in recipe.policies.values() if not p.is_remote]
    if recipe.engine.transfer == "ipc" and recipe.train.shard == "fsdp":
        raise ConfigError(
            "engine.transfer is 'ipc' with train.shard = 'fsdp', but then the process of the run has the weights in "
            "host memory; expected engine.transfer = 'folder' or 'gloo'."
        )
    if recipe.engine.kind == "sglang" and recipe.sampling.legal:
        raise ConfigError(
            "sampling.legal is true with engine.kind = 'sglang', which cannot be limited to legal replies here; "
            "expected sampling.legal = false, or engine.kind = 'local' or 'vllm'."
        )
    if recipe.engine.url is not None:
        adapters = {p.base for p in ours if p.adapter is not None}
        apart = [p for p in ours if p.adapter is None and (p.trainable or p.base not in adapters)]
        if len(adapters) + len(apart) > 1:
            raise ConfigError(
                f"engine.url names one server, but [policies] has {len(adapters) + len(apart)} models to serve; "
                "expected adapters on one base, or no engine.url, so that a server is started for each model."
            )


def _check_workers(plan: RunPlan) -> None:
    """Check that rollout workers can play the episodes of a recipe."""
    recipe, algorithm = plan.recipe, plan.algorithm
    if recipe.engine.kind != "local" and not recipe.cluster.engines:
        raise ConfigError(
            f"cluster.rollout_workers is {recipe.cluster.rollout_workers} with engine.kind = '{recipe.engine.kind}', "
            "but each worker samples with a local engine of its own; expected cluster.engines of at least 1, whose "
            "processes start the servers, or engine.kind = 'local'."
        )
    if recipe.engine.url is not None and recipe.cluster.engines > 1:
        raise ConfigError(
            f"engine.url names one server, but cluster.engines is {recipe.cluster.engines}; expected 1, or no "
            "engine.url, so that each engine starts a server of its own."
        )
    inside = {
        f"{recipe.algorithm.name} asks its critic": algorithm.critic is not None and "values" not in algorithm.needs,
        "sampling.best_of asks a judge": recipe.sampling.best_of > 1,
    }
    for what in (what for what, here in inside.items() if here):
        raise ConfigError(
            f"{what} while an episode is played, and this only works in the process of the run; expected "
            "cluster.rollout_workers = 0."
        )
    whose = "engine_gpus" if recipe.cluster.engines else "worker_gpus"
    if recipe.device == "cuda" and not getattr(recipe.cluster, whose):
        raise ConfigError(
            f"device is 'cuda', but cluster.{whose} is 0, so the engines of rollout workers would have no GPU; "
            "expected a number of GPUs, or a share of one, for each of them."
        )
