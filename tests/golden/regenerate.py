"""Write the golden CPU curve again and print what changed: `python tests/golden/regenerate.py`."""

import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import tiny

GOLDEN = Path(__file__).with_name("grpo_tiny_cpu.jsonl")


def curve():
    """20 steps of the tiny run with every term of the loss in play."""
    run = tiny.tiny_run(budget__steps=20, optim__minibatch_size=8, optim__schedule="linear")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        _, recorder = tiny.execute(run, tiny.tiny_policy(folder / "base"), folder / "run")
    return [{"step": row.step, "m": dict(row.values)} for row in recorder.steps]


def read():
    return [json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").splitlines()]


if __name__ == "__main__":
    before = read() if GOLDEN.exists() else []
    after = curve()
    for old, new in zip(before, after, strict=False):
        for name in sorted(set(old["m"]) | set(new["m"])):
            pair = old["m"].get(name), new["m"].get(name)
            if pair[0] != pair[1]:
                print(f"step {new['step']} {name}: {pair[0]} -> {pair[1]}")
    lines = (json.dumps(row, sort_keys=True) for row in after)
    GOLDEN.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(after)} steps written to {GOLDEN}")
