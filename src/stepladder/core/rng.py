"""Named seed streams: one run seed, one stream a purpose, no global random state."""

from __future__ import annotations

import hashlib


def seed_for(*names: str | int) -> int:
    """Return a 63-bit seed for a named stream, the same on every machine and under any hash seed.

    `seed_for("sample", run_seed, step)` and `seed_for("eval", run_seed)` never share a stream.
    """
    text = "\x1f".join(f"{type(name).__name__}:{name}" for name in names)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
