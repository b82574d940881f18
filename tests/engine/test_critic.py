"""Values: read one place before their token, equal on both backbones, trained by their gradient."""

from dataclasses import replace

import pytest
import tiny
import torch

from stepladder.core.prompt import Split
from stepladder.core.rollout import SamplingParams
from stepladder.engine.batch import pack
from stepladder.engine.critic import SeparateCritic, SharedCritic, build_critic
from stepladder.engine.load import load_policy
from stepladder.engine.policy import ValueHead, distinct_rows
from stepladder.engine.sampling import LocalSampler
from stepladder.engine.seams import ValueModel
from stepladder.engine.text import load_codec
from stepladder.rewards.score import score_groups
from stepladder.spec.run import ModelSpec

KINDS = ("head", "separate")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where = tmp_path_factory.mktemp("policy")
    return tiny.tiny_policy(where, dtype="float64", num_hidden_layers=2)


@pytest.fixture(scope="module")
def packed(folder):
    prompts = tiny.TinyTask().prompts(Split.TRAIN)[:4]
    params = SamplingParams(max_new_tokens=7, temperature=0.8, seed=5)
    drawn = LocalSampler(load(folder), load_codec(folder)).sample(prompts, (3, 1, 4, 2), params)
    return pack(score_groups(tiny.TinyReward(), prompts, drawn))


def load(folder, compact=True, **model):
    spec = ModelSpec.model_validate({"dtype": "float64", **model})
    return load_policy(folder, spec, 0.8, prefer_compact=compact)


def filled(weights):
    """Give a value head weights other than 0: the same ones at each call."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name in ("weight", "bias"):
            weights[f"value_head.{name}"].normal_(0.0, 0.3, generator=generator)


def critic_of(kind, policy):
    """Return a critic with a filled head, and the weights that its values depend on."""
    critic = SharedCritic(policy) if kind == "head" else SeparateCritic(policy.backbone)
    weights = critic.named_parameters() or policy.named_parameters()
    filled(weights)
    return critic, weights


def brute_force(policy, weights, packed):
    """Return values of every row's own unpadded sequence, and the one after its last token."""
    expected = torch.zeros_like(packed.tokens_NT, dtype=torch.float64)
    last = torch.zeros(packed.num_rollouts, dtype=torch.float64)
    for row, length in enumerate(packed.length_N.tolist()):
        hidden_TD = policy.backbone.model.forward_padded(packed.tokens_NT[row, None, :length])[0]
        value_T = hidden_TD @ weights["value_head.weight"][0] + weights["value_head.bias"]
        for t in packed.action_NT[row].nonzero()[:, 0].tolist():
            expected[row, t] = value_T[t - 1]
        last[row] = value_T[length - 1]
    return expected, last


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_a_value_is_read_one_place_before_its_token(folder, packed, kind):
    policy = load(folder)
    critic, weights = critic_of(kind, policy)
    # Rows that hold tokens of an environment: values stand on actions alone.
    odd_T = torch.arange(packed.tokens_NT.shape[1]) % 2 == 1
    for case in (packed, replace(packed, action_NT=packed.action_NT & odd_T)):
        value_NT, last_N = brute_force(policy, weights, case)
        assert value_NT.ne(0).equal(case.action_NT)
        torch.testing.assert_close(critic.values(case), value_NT)
        torch.testing.assert_close(critic.last_values(case), last_N)


@pytest.mark.parametrize("kind", KINDS)
def test_values_are_equal_on_both_backbones(folder, packed, kind):
    gradients = []
    found = []
    for compact in (True, False):
        critic, weights = critic_of(kind, load(folder, compact))
        value_NT = critic.values(packed)
        found.append((value_NT.detach(), critic.last_values(packed)))
        value_NT.square().sum().backward()
        grads = [w.grad for w in weights.values() if w.grad is not None]
        gradients.append(torch.nn.utils.get_total_norm(grads))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(*gradients, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("compact", [True, False])
def test_a_head_changes_nothing_else(folder, packed, compact):
    policy = load(folder, compact)
    bare, size = policy.logprobs(packed), policy.num_parameters
    policy.attach_value_head()
    found = policy.logprobs(packed)
    assert bare.value_NT is None
    assert found.logp_NT.equal(bare.logp_NT)
    assert found.entropy_NT.equal(bare.entropy_NT)
    assert found.value_NT is not None
    assert not found.value_NT.any(), "values begin at 0"
    assert policy.num_parameters == size
    assert {"value_head.weight", "value_head.bias"} < set(policy.named_parameters())


def test_copies_of_a_rollout_get_its_value_and_add_to_its_gradient(folder, packed):
    rows = torch.tensor([0, 0, 0, 3, 4, 4, 8])
    twice = packed.rows(rows)
    assert len(distinct_rows(twice)[0]) == 4
    policy = load(folder)
    critic, weights = critic_of("head", policy)
    torch.testing.assert_close(critic.values(twice), critic.values(packed)[rows])
    folded = torch.autograd.grad(critic.values(twice).sum(), weights["value_head.weight"])
    plain = torch.autograd.grad(critic.values(packed)[rows].sum(), weights["value_head.weight"])
    torch.testing.assert_close(folded, plain)


@pytest.mark.parametrize("kind", KINDS)
def test_gradient_equals_finite_differences(folder, packed, kind):
    """Along a random direction through every weight, the network's included."""
    critic, weights = critic_of(kind, load(folder))
    target_NT = torch.linspace(-1, 1, packed.tokens_NT.numel()).view_as(packed.tokens_NT)

    def loss():
        return ((critic.values(packed) - target_NT).square() * packed.action_NT).sum()

    gradient = torch.autograd.grad(
        loss(), list(weights.values()), allow_unused=True, materialize_grads=True
    )
    assert all(g.any() for g in gradient), "a weight that trains has no part in the values"
    generator = torch.Generator().manual_seed(1)
    move = [torch.randn(w.shape, generator=generator, dtype=w.dtype) for w in weights.values()]
    slope = sum((g * m).sum() for g, m in zip(gradient, move, strict=True))
    ends = []
    with torch.no_grad():
        for step in (1e-6, -2e-6):
            for weight, direction in zip(weights.values(), move, strict=True):
                weight += step * direction
            ends.append(loss())
    torch.testing.assert_close((ends[0] - ends[1]) / 2e-6, slope, atol=0.0, rtol=1e-6)


@pytest.mark.parametrize("compact", [True, False])
def test_an_untied_output_layer_is_no_weight_of_a_separate_critic(tmp_path, packed, compact):
    source = tiny.tiny_policy(tmp_path, dtype="float64", tie_word_embeddings=False)
    policy = load(source, compact)
    critic, weights = critic_of("separate", policy)
    assert len(weights) == len(policy.named_parameters()) - 1 + 2
    critic.values(packed).sum().backward()
    assert all(weight.grad is not None for weight in weights.values())


@pytest.mark.parametrize(
    ("dtype", "value_dtype"),
    [("float64", "float64"), ("float32", "float32"), ("bfloat16", "float32")],
)
@pytest.mark.parametrize("kind", KINDS)
def test_values_are_at_least_float32(folder, packed, kind, dtype, value_dtype):
    critic, weights = critic_of(kind, load(folder, dtype=dtype))
    wanted = getattr(torch, value_dtype)
    assert weights["value_head.weight"].dtype == wanted
    assert critic.values(packed).dtype == wanted
    assert critic.last_values(packed).dtype == wanted
    assert not critic.last_values(packed).requires_grad


@pytest.mark.parametrize("kind", KINDS)
def test_a_critic_learns_a_constant_return(folder, packed, kind):
    policy = load(folder, dtype="float32")
    critic = SharedCritic(policy) if kind == "head" else SeparateCritic(policy.backbone)
    weights = critic.named_parameters() or policy.named_parameters()
    optimizer = torch.optim.Adam(weights.values(), lr=0.02)
    errors = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = (critic.values(packed) - 0.7)[packed.action_NT].square().mean()
        loss.backward()
        optimizer.step()
        errors.append(float(loss.detach()))
    assert errors[0] == pytest.approx(0.49)
    assert errors[-1] < 1e-3


def test_weights_travel_by_name(folder, packed):
    first, weights = critic_of("separate", load(folder))
    second = SeparateCritic(load(folder).backbone)
    own = second.named_parameters()
    assert list(own) == list(weights)
    assert not first.values(packed).equal(second.values(packed))
    with torch.no_grad():
        for name, weight in own.items():
            weight.copy_(weights[name])
    assert first.values(packed).equal(second.values(packed))


@pytest.mark.parametrize("compact", [True, False])
def test_a_saved_policy_has_no_head(folder, packed, tmp_path, compact):
    policy = load(folder, compact)
    bare = policy.logp(packed)
    critic_of("head", policy)
    policy.save_folder(tmp_path)
    assert load(tmp_path).logp(packed).equal(load(folder).logp(packed))
    torch.testing.assert_close(load(tmp_path, compact).logp(packed), bare, atol=0.0, rtol=0.0)


@pytest.mark.parametrize("critic", KINDS)
def test_build_critic(folder, packed, critic):
    run = tiny.tiny_run(algorithm={"type": "ppo", "critic": critic}, model__dtype="float64")
    policy = load(folder)
    found = build_critic(run, folder, policy)
    assert found is not None
    seam: ValueModel = found
    assert seam.shared is (critic == "head")
    assert (policy.value_head is not None) is seam.shared
    assert bool(seam.named_parameters()) is not seam.shared
    assert not seam.values(packed).any()
    if not seam.shared:
        ours = {id(weight) for weight in policy.named_parameters().values()}
        assert not any(id(weight) in ours for weight in seam.named_parameters().values())


@pytest.mark.parametrize("kind", ["grpo", "rloo", "reinforce"])
def test_only_ppo_has_a_critic(folder, kind):
    policy = load(folder)
    assert build_critic(tiny.tiny_run(algorithm={"type": kind}), folder, policy) is None
    assert policy.value_head is None


def test_a_head_on_a_policy_with_adapters(folder, packed):
    pytest.importorskip("peft")
    plain = load(folder)
    adapted = load(folder, lora={"rank": 2})
    critic, weights = critic_of("head", adapted)
    wanted, _ = critic_of("head", plain)
    torch.testing.assert_close(critic.values(packed), wanted.values(packed), atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(
        critic.last_values(packed), wanted.last_values(packed), atol=1e-6, rtol=1e-6
    )
    assert set(weights) - {"value_head.weight", "value_head.bias"}
    assert all("lora_" in name for name in weights if not name.startswith("value_head"))


def test_a_separate_critic_of_a_policy_with_adapters_trains_every_weight(folder):
    pytest.importorskip("peft")
    section = {"type": "ppo", "critic": "separate"}
    run = tiny.tiny_run(algorithm=section, model={"dtype": "float64", "lora": {"rank": 2}})
    policy = load_policy(folder, run.model, 1.0)
    critic = build_critic(run, folder, policy)
    assert critic is not None
    names = set(critic.named_parameters())
    assert names == {*load(folder).named_parameters(), "value_head.weight", "value_head.bias"}


def test_a_value_head_reads_hidden_states_of_any_shape(folder):
    head = ValueHead(load(folder).backbone)
    assert head(torch.ones(2, 3, tiny.SHAPE["hidden_size"])).shape == (2, 3)
