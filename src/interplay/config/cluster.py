"""[cluster]: the other processes that a run starts."""

from __future__ import annotations

from pydantic import Field

from interplay.config.section import Section


class ClusterSection(Section):
    """How a run is distributed over several processes."""

    learners: int = Field(
        1, ge=1, description="with train.shard: number of processes for each trained model, one for each GPU"
    )
    learner_timeout: float = Field(
        1800.0, gt=0, description="a learner process that does not answer for this many seconds counts as lost"
    )
    rollout_workers: int = Field(
        0, ge=0, description="Ray processes that play the training episodes; 0: the run's own process plays them"
    )
    worker_cpus: float = Field(1.0, ge=0, description="CPUs that Ray reserves for each rollout worker")
    worker_gpus: float = Field(0.0, ge=0, description="GPUs, or a fraction of one, that each rollout worker uses")
    worker_timeout: float = Field(
        300.0,
        gt=0,
        description="a rollout worker or an engine is replaced if it needs more seconds than this to load new weights, "
        "or to answer while it plays or samples",
    )
    engines: int = Field(
        0, ge=0, description="Ray processes that sample for the rollout workers; 0: each worker has engines of its own"
    )
    engine_gpus: float = Field(
        0.0, ge=0, description="GPUs, or a fraction of one, that each engine of cluster.engines uses"
    )
    address: str = Field(
        "local",
        description="the Ray cluster: local (started for this run), auto (one that runs already), or its address",
    )
    restarts: int = Field(
        3, ge=0, description="how often in a row a run may go on after it lost a learner process, an engine or a worker"
    )

    @property
    def uses_ray(self) -> bool:
        """Whether a run connects to a Ray cluster, or starts one. The ranks of its learners are then placed there."""
        return self.rollout_workers > 0 or self.address != "local"
