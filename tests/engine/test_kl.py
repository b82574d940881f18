"""KL estimators against numpy and the gradient they train with."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stepladder.engine import kl

D = torch.tensor([-3.0, -0.5, 0.0, 0.5, 3.0], dtype=torch.float64)


def test_estimators_in_closed_form():
    d = D.numpy()
    np.testing.assert_allclose(kl.estimate(D, "k1"), d)
    np.testing.assert_allclose(kl.estimate(D, "k2"), d**2 / 2)
    np.testing.assert_allclose(kl.estimate(D, "k3"), np.exp(-d) - 1 + d, atol=1e-15)


def test_an_unknown_estimator_is_named():
    with pytest.raises(ValueError, match="k4"):
        kl.estimate(D, "k4")


def test_log_ratio_is_clamped():
    found = kl.log_ratio(torch.tensor([0.0, -100.0]), torch.tensor([-50.0, 0.0]))
    assert found.tolist() == [20.0, -20.0]


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_the_term_has_its_value_and_the_gradient_of_k2(estimator):
    logp = (D.clone() - 1.0).requires_grad_()
    term = kl.kl_term(kl.log_ratio(logp, torch.full_like(D, -1.0)), estimator)
    torch.testing.assert_close(term.detach(), kl.estimate(D, estimator))
    term.sum().backward()
    torch.testing.assert_close(logp.grad, D)


def test_the_expected_gradient_is_the_gradient_of_the_kl():
    logits = torch.tensor([0.3, -1.0, 2.0, 0.0], dtype=torch.float64, requires_grad=True)
    ref_logp = torch.tensor([1.0, 0.0, 0.0, -1.0], dtype=torch.float64).log_softmax(0)
    logp = logits.log_softmax(0)
    exact = (logp.exp() * (logp - ref_logp)).sum()
    (expected,) = torch.autograd.grad(exact, logits, retain_graph=True)
    term = kl.kl_term(kl.log_ratio(logp, ref_logp), "k3")
    (found,) = torch.autograd.grad((logp.exp().detach() * term).sum(), logits)
    torch.testing.assert_close(found, expected)


def test_reward_form_is_minus_the_estimate():
    logp_NT, ref_logp_NT = torch.tensor([[-1.0, -2.0]]), torch.tensor([[-1.5, -2.0]])
    assert kl.kl_reward(logp_NT, ref_logp_NT, 0.1, "k1").tolist() == [
        pytest.approx([-0.05, 0.0], abs=1e-7)
    ]


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_the_unbiased_estimators_have_the_kl_as_their_expectation(estimator):
    g = torch.Generator().manual_seed(0)
    for _ in range(5):
        drawn = torch.randn(2, 6, generator=g, dtype=torch.float64)
        logp, ref_logp = drawn.log_softmax(-1)
        exact = torch.distributions.kl_divergence(
            torch.distributions.Categorical(logits=logp),
            torch.distributions.Categorical(logits=ref_logp),
        )
        d = kl.log_ratio(logp, ref_logp)
        torch.testing.assert_close((logp.exp() * kl.estimate(d, estimator)).sum(), exact)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    d=st.floats(-20, 20, width=32),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_k2_and_k3_are_never_negative_and_k3_keeps_its_digits_near_zero(d, dtype):
    tensor = torch.tensor(d, dtype=dtype)
    assert kl.estimate(tensor, "k2") >= 0
    k3 = kl.estimate(tensor, "k3").item()
    # exp(-d) - 1 + d would be off by the rounding of 1; expm1 is off by that of d only.
    assert k3 >= -torch.finfo(dtype).eps * abs(d)
    if abs(d) < 1e-2:
        series = d**2 / 2 - d**3 / 6 + d**4 / 24 - d**5 / 120
        assert k3 == pytest.approx(series, rel=1e-9, abs=2 * torch.finfo(dtype).eps * abs(d))
