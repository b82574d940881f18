"""Gain of every algorithm over the same base policy at equal samples, against GRPO's.

    python benchmarks/learning.py [--model ladder-x1] [--seeds 3] [--jobs 2] [--out runs/learning]

Writes benchmarks/learning.md. Every arm runs the vetted setting with its algorithm's own defaults:
same prompts, rollouts, steps and learning rate. A finished run is not repeated.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ARMS: dict[str, tuple[str, ...]] = {
    "grpo": ("algorithm.type=grpo",),
    "dr_grpo": ("algorithm.type=dr_grpo",),
    "dapo": ("algorithm.type=dapo",),
    "gspo": ("algorithm.type=gspo",),
    "cispo": ("algorithm.type=cispo",),
    "rloo": ("algorithm.type=rloo",),
    "reinforce, batch": ("algorithm.type=reinforce",),
    "reinforce, group baseline": ("algorithm.type=reinforce", "algorithm.baseline=group"),
    "reinforce, running": ("algorithm.type=reinforce", "algorithm.statistics=running"),
    "ppo, separate critic": ("algorithm.type=ppo",),
    "ppo, value head": ("algorithm.type=ppo", "algorithm.critic=head"),
}
FLOOR = 0.9
"""Share of GRPO's gain that every method should reach."""


@dataclass(frozen=True)
class Gain:
    """One run's result."""

    before: float
    after: float
    during: float
    """Mean score of the evaluations after the first: who is quick stands out here."""
    seconds: float
    state: str


def train(arm: str, seed: int, model: str, out: Path) -> Gain:
    """Run one arm with one seed and return its gain."""
    sets = [*ARMS[arm], f"seed={seed}", f'model.path="{model}"']
    flags = [part for value in sets for part in ("--set", value)]
    folder = out / f"{arm.replace(', ', '-').replace(' ', '-')}-seed{seed}"
    command = [sys.executable, "-m", "stepladder", "train", "--out", str(folder), "--json"]
    done = subprocess.run([*command, *flags], capture_output=True, text=True, check=False)
    if not done.stdout:
        raise SystemExit(f"{arm}, seed {seed}: {done.stderr}")
    found = json.loads(done.stdout)
    print(f"{arm}, seed {seed}: {found['score_before']:.3f} -> {found['score_after']:.3f}")
    lines = (folder / "evals.jsonl").read_text(encoding="utf-8").splitlines()
    scores = [json.loads(line)["m"]["eval/pass@1"] for line in lines]
    return Gain(
        before=found["score_before"],
        after=found["score_after"],
        during=statistics.fmean(scores[1:]),
        seconds=found["seconds"],
        state=found["state"],
    )


def table(gains: dict[str, list[Gain]]) -> list[str]:
    """Return the rows of the Markdown table."""
    base = statistics.fmean(g.after - g.before for g in gains["grpo"])
    rows = [
        "| method | gain, each seed | mean | of GRPO's | standard error | over the run | s a run |"
    ]
    rows.append("|---|---|---|---|---|---|---|")
    for arm, found in gains.items():
        values = [g.after - g.before for g in found]
        mean = statistics.fmean(values)
        error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
        seconds = statistics.fmean(g.seconds for g in found)
        during = statistics.fmean(g.during - g.before for g in found)
        each = ", ".join(f"{value:+.3f}" for value in values)
        ended = "" if all(g.state == "done" for g in found) else " (stopped)"
        share = f"{mean / base:.2f}" + ("" if mean >= FLOOR * base else " **below**")
        rows.append(
            f"| {arm}{ended} | {each} | {mean:+.3f} | {share} | {error:.3f} "
            f"| {during:+.3f} | {seconds:.0f} |"
        )
    return rows


def main() -> None:
    """Run every arm and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="ladder-x1")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("runs/learning"))
    options = parser.parse_args()
    cells = [(arm, seed) for seed in range(1, options.seeds + 1) for arm in ARMS]
    with ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(lambda c: train(*c, options.model, options.out), cells))
    gains: dict[str, list[Gain]] = {arm: [] for arm in ARMS}
    for (arm, _), gain in zip(cells, results, strict=True):
        gains[arm].append(gain)
    page = Path(__file__).with_suffix(".md")
    notes = page.read_text(encoding="utf-8").partition("\n## Reading\n")[2] if page.exists() else ""
    text = [
        "# Learning: every method at equal samples",
        "",
        f"`python benchmarks/learning.py --model {options.model} --seeds {options.seeds}`",
        "",
        "Each arm is the vetted setting (`stepladder train`) with the algorithm's own defaults: the",
        "same base policy, prompts, rollouts, steps and learning rate. Gain is held-out pass@1 at the",
        "end (mean of the last two evaluations) less that of the base policy; `over the run` is the",
        "mean of all evaluations less it, so a method that is slow or unsteady stands out there.",
        "",
        *table(gains),
        "",
        "## Reading",
    ]
    page.write_text("\n".join(text) + "\n" + (notes or "\n"), encoding="utf-8")
    print(page.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
