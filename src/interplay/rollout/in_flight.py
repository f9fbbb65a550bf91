"""How many requests of a run can be in flight at the same time. The engine's cache is sized for them."""

from __future__ import annotations

from interplay import algorithms
from interplay.algorithms import Tree
from interplay.config import Recipe
from interplay.engines.engine import MAX_RUNNING
from interplay.engines.local.room import CacheRoom


def cache_room(recipe: Recipe, reserve: int) -> CacheRoom:
    """The room that a recipe's episodes need: those of a training step, of the steps that sampling may run ahead, or of
    an evaluation. In a tree, the candidates of a decision and their playouts are sampled together. If more requests
    come than expected, the engine lets them wait. Learners will need `reserve` bytes of a GPU."""
    plan = algorithms.make(recipe.algorithm, recipe.reward, recipe.seed).plan
    ahead = 1 + recipe.stream.max_staleness
    episodes = max(recipe.rollout.tasks * plan.replicas * ahead, recipe.eval.games)
    each = plan.candidates * plan.playouts if isinstance(plan, Tree) else 1
    requests = min(recipe.rollout.concurrency, episodes) * max(each, recipe.sampling.best_of)
    prompt = recipe.memory.prompt_tokens
    tokens = None if prompt is None else prompt + recipe.sampling.max_tokens
    return CacheRoom(recipe.memory.share, min(MAX_RUNNING, requests), tokens, reserve)
