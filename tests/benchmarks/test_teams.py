"""How full teams keep the engine: what is counted, with a tiny model."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from interplay.envs import Env

TINY = ["policies.agent.base=tiny-32x1", "device=cpu", "sampling.max_tokens=6", "env.data="]


def test_requests_in_flight_and_replies_are_counted_for_one_agent_and_for_a_pair(
    load_script: Callable[[str], ModuleType],
) -> None:
    script, act = load_script("benchmarks/teams.py"), Env.act
    one, pair, tree = (script.measured(arm, [*TINY, *own], 4, 2) for arm, own in script.ARMS.items())
    assert (one.episodes, one.replies) == (8, 8)  # one reply in each episode
    assert 16 <= pair.replies <= 32  # two roles, one or two rounds
    assert 4 * 16 <= tree.replies <= 4 * 32  # and four candidates
    for found in (one, pair):
        assert 0 < found.in_flight <= 4
    assert 4 < tree.in_flight <= 16
    for found in (one, pair, tree):
        assert found.replies <= found.sampled <= 6 * found.replies and 0 < found.engine <= found.seconds
        assert found.arm in found.line() and "prompts" in found.details()
        assert min(found.parts.values()) >= 0 and {"prompts", "decode", "deliver"} <= set(found.parts)
        assert found.counts["tokens"] >= 1 and 0 < found.counts["prompts"] <= found.counts["prompt tokens"]
    assert Env.act is act  # the environment is left as it was


def test_a_simulated_gpu_only_waits(load_script: Callable[[str], ModuleType]) -> None:
    """Everything but the computation is done. Replies have the lengths that were drawn for them."""
    script = load_script("benchmarks/teams.py")
    script.SimulatedGpu.MEAN, script.SimulatedGpu.SPREAD = 3, 0
    found = script.measured("one agent", [*TINY, *script.ARMS["one agent"]], 4, 2, simulated=True)
    assert (found.replies, found.sampled) == (8, 3 * 8)
    assert 0 < found.simulated <= 1.1 and "GPU busy" in found.details()
