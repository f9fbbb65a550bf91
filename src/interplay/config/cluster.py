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
    restarts: int = Field(
        3, ge=0, description="how often a run goes on from its newest checkpoint after it lost a learner's process"
    )
