"""The reference policy: stored weights, asked through the policy's network, which stays as it is."""

import pytest
import tiny
import torch

from stepladder.core.prompt import Split
from stepladder.core.rollout import SamplingParams
from stepladder.engine.batch import pack
from stepladder.engine.load import load_policy
from stepladder.engine.policy import VALUE_HEAD
from stepladder.engine.reference import StoredReference, build_base, build_reference
from stepladder.engine.sampling import LocalSampler
from stepladder.engine.text import load_codec
from stepladder.rewards.score import score_groups
from stepladder.spec.run import KlSpec, ModelSpec, RunSpec


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny.tiny_policy(tmp_path_factory.mktemp("policy"))


def load(folder, **model):
    return load_policy(folder, ModelSpec.model_validate(model), 1.0)


@pytest.fixture
def policy(folder):
    return load(folder)


@pytest.fixture
def packed(folder, policy):
    prompts = tiny.TinyTask().prompts(Split.TRAIN)[:2]
    params = SamplingParams(max_new_tokens=5, seed=2)
    completions = LocalSampler(policy, load_codec(folder)).sample(prompts, (3, 2), params)
    return pack(score_groups(tiny.TinyReward(), prompts, completions))


def values(policy):
    return {name: w.detach().clone() for name, w in policy.named_parameters().items()}


def move(policy, by=0.1):
    with torch.no_grad():
        for weight in policy.named_parameters().values():
            weight += by


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_it_answers_as_the_policy_did_when_it_was_built(policy, packed):
    before = policy.logp(packed)
    reference = StoredReference(policy, KlSpec())
    move(policy)
    assert not torch.equal(policy.logp(packed), before)
    assert torch.equal(reference.logp(packed), before)


def test_asking_leaves_the_policy_bit_identical_and_its_gradients_alone(policy, packed):
    reference = StoredReference(policy, KlSpec())
    move(policy)
    kept, storages = values(policy), [w.data_ptr() for w in policy.named_parameters().values()]
    policy.logprobs(packed).logp_NT.sum().backward()
    gradients = {n: w.grad.clone() for n, w in policy.named_parameters().items()}
    assert not reference.logp(packed).requires_grad
    assert_same(values(policy), kept)
    assert [w.data_ptr() for w in policy.named_parameters().values()] == storages
    assert_same({n: w.grad for n, w in policy.named_parameters().items()}, gradients)


def test_a_failing_pass_still_gives_the_policy_its_weights_back(policy, packed, monkeypatch):
    reference = StoredReference(policy, KlSpec())
    move(policy)
    kept = values(policy)
    monkeypatch.setattr(policy.backbone, "logits_at", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        reference.logp(packed)
    assert_same(values(policy), kept)


def test_a_frozen_reference_never_moves_and_saves_nothing(policy, packed):
    before = policy.logp(packed)
    reference = StoredReference(policy, KlSpec(refresh_every=1))
    move(policy)
    assert reference.after_step(1) is None
    assert reference.state() == {}
    assert torch.equal(reference.logp(packed), before)


def test_a_refreshed_reference_is_the_policy_of_the_last_multiple(policy, packed):
    reference = StoredReference(policy, KlSpec(reference="refresh", refresh_every=2))
    asked, events = [], []
    for step in range(1, 5):
        move(policy, 0.1 * step)
        events.append(reference.after_step(step))
        asked.append(torch.equal(reference.logp(packed), policy.logp(packed)))
    assert asked == [False, True, False, True]
    assert [event and event.kind for event in events] == [None, "reference_refreshed"] * 2
    assert events[1].details == {"every": 2}


def test_a_moving_average_follows_the_decay(policy):
    start = values(policy)
    reference = StoredReference(policy, KlSpec(reference="ema", ema_decay=0.75))
    for step in (1, 2):
        move(policy, 1.0)
        assert reference.after_step(step) is None
    # 0.75 (0.75 x + 0.25 (x + 1)) + 0.25 (x + 2) = x + 0.6875
    for name, weight in reference.state().items():
        torch.testing.assert_close(weight, start[name] + 0.6875)


@pytest.mark.parametrize("mode", ["refresh", "ema"])
def test_a_moving_reference_survives_a_checkpoint(folder, policy, packed, mode):
    spec = KlSpec(reference=mode, refresh_every=1)
    reference = StoredReference(policy, spec)
    move(policy)
    reference.after_step(1)
    answer = reference.logp(packed)
    saved = {name: value.clone() for name, value in reference.state().items()}
    again = load(folder)
    resumed = StoredReference(again, spec)
    resumed.load(saved)
    assert torch.equal(resumed.logp(packed), answer)


def test_adapters_are_all_that_is_stored(folder):
    policy = load(folder, lora={"rank": 2})
    reference = StoredReference(policy, KlSpec(reference="ema"))
    assert reference.state().keys() == policy.named_parameters().keys()
    stored = sum(value.numel() for value in reference.state().values())
    assert 0 < stored < 0.5 * policy.num_parameters


def test_a_value_head_is_no_part_of_the_reference(policy, packed):
    policy.attach_value_head()
    reference = StoredReference(policy, KlSpec(reference="refresh", refresh_every=1))
    move(policy)
    head = policy.value_head.weight.detach().clone()
    reference.after_step(1)
    reference.logp(packed)
    assert not any(name.startswith(VALUE_HEAD) for name in reference.state())
    assert torch.equal(policy.value_head.weight, head)


OFF = {"coef": 0.0, "cap": None}


@pytest.mark.parametrize(
    ("kl", "kept"),
    [
        (OFF, False),
        (OFF | {"coef": 0.1}, True),
        (OFF | {"cap": 1.0}, True),
        (OFF | {"budget": 1.0}, True),
        (OFF | {"controller": "adaptive"}, True),
    ],
)
def test_a_reference_is_kept_only_when_something_asks_for_it(policy, kl, kept):
    run = RunSpec.model_validate({"kl": kl})
    assert (build_reference(policy, run) is not None) == kept


def test_the_base_policy_is_kept_apart_only_for_a_budget_with_a_moving_reference(policy):
    def built(**kl):
        return build_base(policy, RunSpec.model_validate({"kl": kl}))

    assert built(reference="ema") is None
    assert built(budget=1.0) is None
    base = built(budget=1.0, reference="ema")
    start = {name: value.clone() for name, value in values(policy).items()}
    move(policy)
    base.after_step(50)
    assert base.state() == {}
    assert_same(base._weights, start)
