"""Seeds are made from keys."""

from __future__ import annotations

from interplay.types import seed_of


def test_seed_of_is_a_pure_function_of_its_parts() -> None:
    """All randomness is counter-based: the same keys give the same 63 bits, in every process and on every day."""
    assert seed_of(0, "task-1", 3) == seed_of(0, "task-1", 3)
    assert len({seed_of("a", i) for i in range(1000)} | {seed_of("ab"), seed_of("a", "b"), seed_of(("a", "b"))}) == 1003
    assert all(0 <= seed_of(i) < 2**63 for i in range(1000))
    assert seed_of("interplay", 0) == 4528055326040461084  # a stored number: changing it changes every run
