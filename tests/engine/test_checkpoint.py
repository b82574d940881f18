"""Checkpoints come back exactly, damage is named, the right ones are kept; random state returns."""

import json
import os
import random

import numpy as np
import pytest
import torch

from stepladder.core.errors import StoreError
from stepladder.engine import random_state
from stepladder.engine.checkpoint import FORMAT, Checkpoint, CheckpointStore, read_checkpoint


def tensors(value=0.0):
    return {"weights": {"w": torch.full((2, 3), value)}, "optimizer": {"step/w": torch.tensor(1.0)}}


def saved(folder, step=1, **more):
    store = CheckpointStore(folder, **more)
    store.save(step, tensors(step), {"loop": {"step": step}})
    return store


def test_every_stem_and_the_state_come_back(tmp_path):
    store = CheckpointStore(tmp_path)
    sets = {
        "weights": {"w": torch.randn(3, 2), "half": torch.randn(4).bfloat16()},
        "reference": {"w": torch.randn(3, 2, dtype=torch.float64)},
        "random": {"key": torch.arange(5)},
        "critic": {},
    }
    folder = store.save(7, sets, {"loop": {"lr": 0.1 + 0.2}}, score=0.25)
    assert sorted(p.name for p in folder.iterdir()) == [
        "random.safetensors",
        "reference.safetensors",
        "state.json",
        "weights.safetensors",
    ]
    found = store.load_latest()
    assert isinstance(found, Checkpoint)
    assert (found.step, found.folder, found.state["score"]) == (7, folder, 0.25)
    assert found.state["loop"]["lr"] == 0.1 + 0.2
    assert set(found.tensors) == {"weights", "reference", "random"}
    assert found.part("critic") == {}
    for stem, named in sets.items():
        for name, tensor in named.items():
            assert torch.equal(found.part(stem)[name], tensor)
            assert found.part(stem)[name].dtype == tensor.dtype


def test_shared_strided_and_gradient_tensors_are_saved_as_their_values(tmp_path):
    base = torch.nn.Parameter(torch.arange(12.0).view(3, 4))
    named = {
        "a": base,
        "b": base,
        "row": base[1],
        "strided": base.t(),
        "scalar": base[0, 1],
        "broadcast": torch.ones(1).expand(4),
        "none": torch.zeros(0, 3),
        "none too": torch.zeros(0),
    }
    store = CheckpointStore(tmp_path)
    store.save(1, {"weights": named}, {})
    found = store.load_latest().part("weights")
    assert all(torch.equal(found[name], tensor.detach()) for name, tensor in named.items())


def change(path, at=-1):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


DAMAGE = {
    "weights changed": (
        lambda f: change(f / "weights.safetensors"),
        "weights.safetensors does not",
    ),
    "optimizer cut": (
        lambda f: os.truncate(f / "optimizer.safetensors", 20),
        "optimizer.safetensors does not",
    ),
    "optimizer gone": (lambda f: (f / "optimizer.safetensors").unlink(), "optimizer.safetensors"),
    "state changed": (
        lambda f: (f / "state.json").write_text(
            (f / "state.json").read_text().replace('"step": 2', '"step": 3', 1)
        ),
        "state.json does not match",
    ),
    "state cut": (lambda f: os.truncate(f / "state.json", 30), ""),
    "no state": (lambda f: (f / "state.json").unlink(), "state.json"),
    "older format": (
        lambda f: (f / "state.json").write_text(json.dumps({"format": FORMAT - 1})),
        f"has format {FORMAT - 1}",
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(damage, tmp_path):
    store = saved(tmp_path, 1, keep=2)
    store.save(2, tensors(2), {"loop": {"step": 2}})
    act, words = DAMAGE[damage]
    act(tmp_path / "step-000002")
    found = store.load_latest()
    assert found.step == 1
    assert len(store.damaged) == 1
    assert store.damaged[0].startswith("step-000002: ")
    assert words in store.damaged[0]


def test_a_damaged_checkpoint_never_pushes_out_a_good_one(tmp_path):
    for step in (10, 20):
        saved(tmp_path, step, keep=2)
    change(tmp_path / "step-000020" / "weights.safetensors")
    store = CheckpointStore(tmp_path, keep=1)
    assert store.load_latest().step == 10
    store.save(15, tensors(), {})
    assert store.names() == ["step-000020", "step-000015"]
    assert store.load_latest().step == 15
    store.save(20, tensors(), {})
    assert store.names() == ["step-000020"]


@pytest.mark.parametrize("damage", ["optimizer cut", "optimizer gone"])
def test_a_lost_optimizer_state_is_never_passed_over_in_silence(damage, tmp_path):
    store = saved(tmp_path, 2)
    DAMAGE[damage][0](tmp_path / "step-000002")
    with pytest.raises(StoreError, match=r"SL0411 .*optimizer.*--reset-optimizer"):
        store.load_latest()
    found = CheckpointStore(tmp_path).load_latest(needs_optimizer=False)
    assert found.step == 2
    assert set(found.tensors) == {"weights"}
    change(tmp_path / "step-000002" / "weights.safetensors")
    assert CheckpointStore(tmp_path).load_latest(needs_optimizer=False) is None
    assert CheckpointStore(tmp_path).load_latest() is None


def test_what_a_killed_save_left_is_swept_and_never_loaded(tmp_path):
    store = saved(tmp_path)
    (tmp_path / ".step-000002.99").mkdir()
    assert store.names() == ["step-000001"]
    assert store.load_latest().step == 1
    assert not list(tmp_path.glob(".step-*"))


def test_a_run_without_checkpoints_has_none(tmp_path):
    store = CheckpointStore(tmp_path / "none")
    assert (store.load_latest(), store.names(), store.best()) == (None, [], None)


def test_the_newest_and_the_best_of_the_rest_are_kept(tmp_path):
    store = CheckpointStore(tmp_path, keep=1, keep_best=2)
    kept = []
    for step, score in enumerate((0.3, 0.9, 0.5, None, 0.9, float("nan"), 0.1), 1):
        store.save(step, tensors(), {}, score)
        kept.append([int(name[-6:]) for name in store.names()])
    assert kept == [[1], [2, 1], [3, 2, 1], [4, 3, 2], [5, 3, 2], [6, 5, 2], [7, 5, 2]]
    assert store.best() == "step-000002"  # equal scores: the earlier
    one = CheckpointStore(tmp_path / "one", keep=1, keep_best=1)
    for step in (1, 2, 3):
        one.save(step, tensors(), {}, 0.5)
    assert one.names() == ["step-000003", "step-000001"]


def test_order_is_by_number_beyond_six_digits(tmp_path):
    store = CheckpointStore(tmp_path, keep=1)
    for step in (999_999, 1_000_000):
        store.save(step, tensors(), {})
    assert store.names() == ["step-1000000"]


def test_the_same_state_is_written_byte_for_byte(tmp_path):
    one, other = (CheckpointStore(tmp_path / name).save(3, tensors(1), {"x": 1}) for name in "ab")
    for path in one.iterdir():
        assert path.read_bytes() == (other / path.name).read_bytes()
    assert read_checkpoint(one).state == read_checkpoint(other).state


def draws():
    return (
        random.random(),
        random.gauss(0, 1),
        np.random.standard_normal(),
        torch.randn(3).tolist(),
    )


def test_random_state_goes_through_a_checkpoint_and_back(tmp_path):
    for _ in range(3):  # an odd number: both Gaussian generators hold a spare value
        draws()
    captured, values = random_state.capture()
    store = CheckpointStore(tmp_path)
    store.save(1, {"random": captured}, {"random": values})
    expected = [draws() for _ in range(3)]
    assert expected[0] != expected[1]
    found = store.load_latest()
    random_state.apply(found.part("random"), found.state["random"])
    assert [draws() for _ in range(3)] == expected
    random_state.apply({}, {})
