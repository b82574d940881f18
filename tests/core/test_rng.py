"""Seed streams are the same everywhere and never shared."""

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from stepladder.core.rng import seed_for

NAMES = st.lists(st.one_of(st.text(max_size=8), st.integers()), min_size=1, max_size=3)


def test_a_stream_never_changes():
    assert seed_for("sample", 1, 20) == 6255245683608351213


def test_hash_seed_does_not_matter():
    program = "from stepladder.core.rng import seed_for; print(seed_for('eval', 3))"
    answers = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1", "77")
    }
    assert answers == {f"{seed_for('eval', 3)}\n"}


@given(NAMES)
def test_seeds_fit_a_signed_64_bit_number(names):
    assert 0 <= seed_for(*names) < 2**63


def test_text_and_number_are_different_names():
    streams = [
        seed_for("a", 1),
        seed_for("a", "1"),
        seed_for("a1"),
        seed_for("a", 1, ""),
        seed_for(1),
    ]
    assert len(set(streams)) == len(streams)
