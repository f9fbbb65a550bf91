"""[cluster]: the processes of a run beyond the one that was started."""

from __future__ import annotations

from pydantic import Field

from interplay.config.section import Section


class ClusterSection(Section):
    """Processes that a run is spread over."""

    learners: int = Field(
        1, ge=1, description="with train.shard: processes that each trained model is sharded over, one for each GPU"
    )
    learner_timeout: float = Field(
        1800.0, gt=0, description="seconds after which a learner's process that does not answer is given up"
    )
    rollout_workers: int = Field(
        0, ge=0, description="processes that play the training episodes, with Ray; 0: the process of the run plays them"
    )
    worker_cpus: float = Field(1.0, ge=0, description="CPUs that Ray reserves for each rollout worker")
    worker_gpus: float = Field(0.0, ge=0, description="GPUs, or a share of one, for each rollout worker's engines")
    worker_timeout: float = Field(
        300.0, gt=0, description="seconds that a rollout worker may take for new weights before it is replaced"
    )
    address: str = Field("local", description="the Ray cluster: local (started for this run), auto, or its address")
    restarts: int = Field(
        3, ge=0, description="how often a run goes on after it has lost a process of a learner or engine, or a worker"
    )
