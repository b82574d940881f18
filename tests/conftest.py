"""What every test leaves behind must be what it found."""

import sys

import pytest


@pytest.fixture(autouse=True)
def keep_denormals():
    """Undo what a run in this process sets for speed; Hypothesis refuses to draw without them."""
    yield
    if "torch" in sys.modules:
        sys.modules["torch"].set_flush_denormal(False)
