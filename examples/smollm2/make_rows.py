"""Write a reasoning-gym task as JSONL rows in verl's schema: train.jsonl and eval.jsonl.

`python examples/smollm2/make_rows.py runs/smollm2-rows`. Needs the extra `gym`. The task is
chain_sum with two terms of one or two digits, which the 135M model gets right now and then.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import reasoning_gym

TASK = "chain_sum"
SETTINGS = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 2}
SEEDS = {"shots": 900_000, "eval": 20_000_000, "train": 30_000_000}
"""Item i of seed s is item i - 1 of seed s + 1 in reasoning-gym: seeds lie further apart than any
split is long. The domain is small as well, so a question of an earlier split is left out."""
NUM_SHOTS = 4
SYSTEM = (
    "Think in one short line, then answer, exactly like this:"
    " <think>line</think><answer>answer</answer>"
)


def items(split: str, count: int, used: set[str]) -> Iterator[tuple[str, str]]:
    """Yield `count` different (question, answer) pairs, none of which is in `used`."""
    made = reasoning_gym.create_dataset(TASK, seed=SEEDS[split], size=20 * count, **SETTINGS)
    found = 0
    for item in made:
        question, answer = str(item["question"]), str(item["answer"])
        if question in used:
            continue
        used.add(question)
        yield question, answer
        found += 1
        if found == count:
            return
    raise SystemExit(f"the task has only {found} different questions for {split}")


def worked(question: str, answer: str) -> str:
    """Return a worked completion in the format that the parser reads."""
    expression = question.rpartition(":")[2].strip()
    return f"<think>{expression} {answer}</think><answer>{answer}</answer>"


def row(
    split: str, index: int, pair: tuple[str, str], shots: Sequence[tuple[str, str]]
) -> dict[str, Any]:
    """Return one row of verl's schema; worked examples stand before the question."""
    turns = [{"role": "system", "content": SYSTEM}]
    for question, answer in shots:
        turns.append({"role": "user", "content": question})
        turns.append({"role": "assistant", "content": worked(question, answer)})
    turns.append({"role": "user", "content": pair[0]})
    return {
        "data_source": f"reasoning_gym/{TASK}",
        "prompt": turns,
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": pair[1]},
        "extra_info": {"split": split, "index": index},
    }


def write_rows(folder: Path, num_train: int, num_eval: int) -> None:
    """Write both files; the same call writes the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    used: set[str] = set()
    shots = list(items("shots", NUM_SHOTS, used))
    for split, count in (("eval", num_eval), ("train", num_train)):
        pairs = list(items(split, count, used))
        rows = [row(split, index, pair, shots) for index, pair in enumerate(pairs)]
        text = "".join(json.dumps(entry) + "\n" for entry in rows)
        (folder / f"{split}.jsonl").write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--num-train", type=int, default=400)
    parser.add_argument("--num-eval", type=int, default=64)
    arguments = parser.parse_args()
    write_rows(arguments.folder, arguments.num_train, arguments.num_eval)
    print(f"wrote {arguments.folder}/train.jsonl and {arguments.folder}/eval.jsonl")


if __name__ == "__main__":
    main()
