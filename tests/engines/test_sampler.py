"""From logits to tokens: the right distribution, the right log-prob, and random numbers that depend only on keys."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from interplay.engines.local.sampler import sample, uniforms


def test_uniforms_are_counter_based_and_lie_in_the_half_open_unit_interval() -> None:
    seeds = np.array([0, 1, 2**63 - 1, 2**62 + 12345] * 25_000, np.uint64)
    positions = np.arange(100_000, dtype=np.uint64) // 4
    draws = uniforms(seeds, positions)
    assert draws.min() >= 0.0
    assert draws.max() < 1.0
    # A draw depends on its own (seed, position) only.
    some = [3, 77_777, 12]
    assert np.array_equal(uniforms(seeds[some], positions[some]), draws[some])
    # Flat over the interval, and neighbours are unrelated: along positions, and along seeds.
    counts = np.histogram(draws, bins=20, range=(0, 1))[0]
    assert ((counts - 5_000) ** 2 / 5_000).sum() < 45  # chi-square with 19 degrees of freedom: p = 0.0007
    along_positions = uniforms(np.full(50_000, 7, np.uint64), np.arange(50_000, dtype=np.uint64))
    along_seeds = uniforms(np.arange(50_000, dtype=np.uint64), np.zeros(50_000, np.uint64))
    for line in (along_positions, along_seeds):
        assert abs(np.corrcoef(line[:-1], line[1:])[0, 1]) < 0.02
        assert len(np.unique(line)) == 50_000


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_sampling_follows_the_distribution_at_a_temperature(temperature: float) -> None:
    count = 40_000
    logits = torch.tensor([1.5, -0.5, 0.0, 3.0, -2.0, 0.7])
    draws = torch.from_numpy(uniforms(np.arange(count, dtype=np.uint64), np.zeros(count, np.uint64)))
    tokens, logprobs = sample(logits.expand(count, -1), [temperature] * count, draws)
    expected = torch.softmax(logits / temperature, -1)
    observed = torch.bincount(tokens, minlength=6) / count
    assert 0.5 * (observed - expected).abs().sum() < 0.01
    torch.testing.assert_close(logprobs, expected.log()[tokens], atol=1e-6, rtol=1e-6)


def test_a_token_of_probability_zero_is_never_drawn() -> None:
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf]])
    for draw, token in ((0.0, 1), (0.4999, 1), (0.5001, 3), (1 - 2.0**-53, 3)):
        tokens, logprobs = sample(logits, [1.0], torch.tensor([draw], dtype=torch.float64))
        assert tokens.item() == token
        assert logprobs.item() == pytest.approx(np.log(0.5), abs=1e-6)


def test_temperature_zero_takes_the_most_likely_token_beside_rows_that_sample() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 11, generator=generator)
    temperatures = [0.0, 1.0, 0.0, 0.7, 1.0, 0.0]
    draws = torch.rand(6, generator=generator, dtype=torch.float64)
    tokens, logprobs = sample(logits, temperatures, draws)
    greedy = torch.tensor(temperatures) == 0
    assert torch.equal(tokens[greedy], logits.argmax(-1)[greedy])
    assert logprobs[greedy].tolist() == [0.0, 0.0, 0.0]  # it was certain
    for row in range(6):  # a row's result does not depend on its neighbours
        alone = sample(logits[row : row + 1], temperatures[row : row + 1], draws[row : row + 1])
        assert alone[0].item() == tokens[row].item()
        assert alone[1].item() == pytest.approx(logprobs[row].item(), abs=1e-6)
