"""Gradients of weights are added up in fp32 where the optimiser reads them, whichever way they come."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch
from torch import Tensor

from interplay.training.masters import Masters, master_of

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="Triton has no build for this machine")
T, K = 12, 8
SIZES = (5, 3, 4)


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape).bfloat16()


def layers(masters: bool = True) -> tuple[list[torch.nn.Parameter], Masters | None]:
    torch.manual_seed(0)
    found = [torch.nn.Parameter(drawn(n, K)) for n in SIZES]
    return found, Masters(found) if masters else None


def test_products_are_added_up_in_fp32_for_layers_side_by_side() -> None:
    from interplay.training.gradients import add_products

    parameters, masters = layers()
    assert masters is not None
    wanted = torch.zeros(sum(SIZES), K)
    for _ in range(5):
        a, b = drawn(T, sum(SIZES)), drawn(T, K)
        assert add_products(parameters, a, b) == [None] * 3
        masters.collect()  # autograd has no gradients: nothing changes
        wanted += a.float().t() @ b.float()
    for master, part in zip(masters.own, wanted.split(SIZES), strict=True):
        assert master.grad is not None and master.grad.dtype is torch.float32
        torch.testing.assert_close(master.grad, part, atol=1e-5, rtol=1e-5)


def test_gradients_of_autograd_and_ours_of_one_step_are_added_up() -> None:
    """Some micro-batches of a step come from autograd, for example those with masks."""
    from interplay.training.gradients import add_products

    for order in ("ours first", "autograd first"):
        parameters, masters = layers()
        assert masters is not None
        a, b = drawn(T, sum(SIZES)), drawn(T, K)
        wanted = 2 * (a.float().t() @ b.float()) + 1
        for ours in (order == "ours first", order != "ours first", True):
            if ours:
                add_products(parameters, a, b)
            else:
                for p in parameters:
                    p.grad = torch.ones_like(p)
            masters.collect()
        for master, part in zip(masters.own, wanted.split(SIZES), strict=True):
            assert master.grad is not None
            torch.testing.assert_close(master.grad, part, atol=1e-5, rtol=1e-5)


def test_a_new_step_begins_with_no_gradient() -> None:
    from interplay.training.gradients import add_products, add_rows, add_vectors

    parameters, masters = layers()
    assert masters is not None
    for _ in range(2):
        for master in masters.own:
            master.grad = None
        a, b = drawn(T, sum(SIZES)), drawn(T, K)
        add_products(parameters, a, b)
        assert masters.own[0].grad is not None
        torch.testing.assert_close(masters.own[0].grad, (a.float().t() @ b.float())[: SIZES[0]], atol=1e-5, rtol=1e-5)
    vector, table = torch.nn.Parameter(drawn(K)), torch.nn.Parameter(drawn(6, K))
    both = Masters([vector, table])
    ids, grad = torch.tensor([1, 4, 1]), drawn(3, K)
    for _ in range(2):
        assert add_vectors([vector], torch.ones(K)) == [None] and add_rows(table, ids, grad) is None
    wanted = torch.zeros(6, K).index_add_(0, ids, 2 * grad.float())
    torch.testing.assert_close(both.own[0].grad, torch.full((K,), 2.0))
    torch.testing.assert_close(both.own[1].grad, wanted)


def test_vectors_side_by_side_get_their_parts_also_if_one_has_a_gradient_of_its_own() -> None:
    from interplay.training.gradients import add_vectors

    torch.manual_seed(0)
    biases = [torch.nn.Parameter(drawn(n)) for n in SIZES]
    masters = Masters(biases)
    masters.own[1].grad = torch.ones(SIZES[1])
    total = torch.randn(sum(SIZES))
    for _ in range(3):
        add_vectors(biases, total.clone())
    wanted = 3 * total
    wanted[SIZES[0] : SIZES[0] + SIZES[1]] += 1
    for master, part in zip(masters.own, wanted.split(SIZES), strict=True):
        torch.testing.assert_close(master.grad, part)


def test_without_a_master_the_gradient_is_returned_as_autograd_wants_it() -> None:
    from interplay.training.gradients import add_products, add_rows, add_vectors

    parameters, _ = layers(masters=False)
    a, b = drawn(T, sum(SIZES)), drawn(T, K)
    for parameter, grad, size in zip(parameters, add_products(parameters, a, b), SIZES, strict=True):
        assert grad is not None and grad.shape == (size, K) and grad.dtype is parameter.dtype
    (vector,) = add_vectors([torch.nn.Parameter(drawn(K))], torch.ones(K))
    rows = add_rows(torch.nn.Parameter(drawn(6, K)), torch.tensor([1, 4, 1]), drawn(3, K))
    assert vector is not None and vector.dtype is torch.bfloat16
    assert rows is not None and rows.shape == (6, K) and not rows[0].any() and rows[1].any()


def test_a_parameter_does_not_keep_the_master_of_a_learner_that_is_gone() -> None:
    parameters, masters = layers()
    assert all(master_of(p) is not None for p in parameters)
    del masters
    assert all(master_of(p) is None for p in parameters)
    mine = Masters(parameters)
    assert [master_of(p) is m for p, m in zip(parameters, mine.own, strict=True)] == [True] * 3
