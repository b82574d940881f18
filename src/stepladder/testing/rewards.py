"""Checks that any reward must pass, and the attacks that none may pay for.

Written for strangers' tests: `check_reward(MyReward(), task)` raises AssertionError with the
prompt and the completion that show the fault. `stepladder tasks audit` uses the same attacks.
"""

from __future__ import annotations

import ast
import math
import pickle
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from numbers import Real
from typing import Any

from stepladder.core.answer import full_marks
from stepladder.core.prompt import Prompt, Split
from stepladder.core.rollout import Completion, StopReason
from stepladder.core.seams import Reward, Task
from stepladder.rewards.base import FunctionReward

JUNK = "asdf <b>42</b> ??? </think> lorem ipsum </answer> <answer> <answer>"
ATTACKS: Mapping[str, Callable[[Prompt, Prompt], str]] = {
    "empty": lambda prompt, other: "",  # noqa: ARG005
    "junk": lambda prompt, other: JUNK,  # noqa: ARG005
    "echo of the prompt": lambda prompt, other: prompt.text,  # noqa: ARG005
    "echo as the answer": lambda prompt, other: full_marks("", prompt.text),  # noqa: ARG005
    "gold without tags": lambda prompt, other: prompt.gold,  # noqa: ARG005
    "gold in the think part": lambda prompt, other: f"<think>{prompt.gold}</think>",  # noqa: ARG005
    "answer inside think": lambda prompt, other: (  # noqa: ARG005
        f"<think><answer>{prompt.gold}</answer></think>"
    ),
    "unclosed answer": lambda prompt, other: f"<think></think><answer>{prompt.gold}",  # noqa: ARG005
    "two answers": lambda prompt, other: (
        f"{full_marks('', changed(other.gold))}<answer>{prompt.gold}</answer>"
    ),
    "nested answers": lambda prompt, other: full_marks(
        "", f"{changed(other.gold)}<answer>{prompt.gold}</answer>"
    ),
    "list of answers": lambda prompt, other: full_marks(
        "", f"{changed(prompt.gold)}, {other.gold}, {prompt.gold}"
    ),
    "changed answer": lambda prompt, other: full_marks("", changed(prompt.gold)),  # noqa: ARG005
    "another prompt's answer": lambda prompt, other: full_marks("", other.gold),  # noqa: ARG005
}
"""Name -> completion for a prompt; `other` is another prompt. None may earn the outcome term,
unless its answer happens to be right."""


def changed(gold: str) -> str:
    """Return a text that differs from `gold` in its last letter or digit."""
    for place in range(len(gold) - 1, -1, -1):
        for kind in (string.digits, string.ascii_lowercase, string.ascii_uppercase):
            if gold[place] in kind:
                swapped = kind[(kind.index(gold[place]) + 1) % len(kind)]
                return gold[:place] + swapped + gold[place + 1 :]
    return f"{gold}x"


def completion_of(prompt: Prompt, text: str, sample: int = 0) -> Completion:
    """Return a completion as if sampled, one token a character."""
    return Completion(
        prompt_id=prompt.id,
        sample=sample,
        prompt_token_ids=tuple(map(ord, prompt.text)),
        token_ids=tuple(map(ord, text)),
        logprobs=(0.0,) * len(text),
        stop=StopReason.EOS,
        policy_version=0,
        text=text,
    )


def known_right(prompt: Prompt, answer: str, outcome: str) -> bool:
    """Return whether an answer is right by a second way, apart from the reward under test."""
    if answer.split() == prompt.gold.split():
        return True
    if outcome == "numeric":
        return _as_fraction(answer) is not None and _as_fraction(answer) == _as_fraction(
            prompt.gold
        )
    return outcome == "countdown" and _reaches_target(prompt, answer)


def _as_fraction(text: str) -> Fraction | None:
    try:
        return Fraction(text.replace(",", "").replace(" ", ""))
    except (ValueError, ZeroDivisionError):
        return None


def _reaches_target(prompt: Prompt, expression: str) -> bool:
    used: list[int] = []
    try:
        value = _evaluate(ast.parse(expression, mode="eval").body, used)
    except (SyntaxError, ValueError, ZeroDivisionError):
        return False
    given, taken = Counter(prompt.extra["numbers"]), Counter(used)
    fits = taken == given if prompt.extra["use_all"] else taken <= given
    return fits and value == prompt.extra["target"]


def _evaluate(node: ast.expr, used: list[int]) -> Fraction:
    """Walk Python's syntax tree; nothing is run."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        used.append(node.value)
        return Fraction(node.value)
    if not isinstance(node, ast.BinOp):
        raise ValueError("no arithmetic")
    first, second = _evaluate(node.left, used), _evaluate(node.right, used)
    match node.op:
        case ast.Add():
            return first + second
        case ast.Sub():
            return first - second
        case ast.Mult():
            return first * second
        case ast.Div():
            return first / second
        case _:
            raise ValueError("no arithmetic")


def sample_of(task: Task, num_prompts: int) -> list[Prompt]:
    """Return eval prompts, at most half, and train prompts; the holdout is left alone."""
    held_out = task.prompts(Split.EVAL)[: max(1, num_prompts // 2)]
    return [*task.prompts(Split.TRAIN)[: num_prompts - len(held_out)], *held_out]


def check_reward(
    reward: Reward | Callable[[Prompt, Completion], float], task: Task, num_prompts: int = 50
) -> None:
    """Assert that a reward can be trusted on a task's prompts.

    It gives finite numbers under the same names for the oracle and for every attack, the same ones
    when asked again and in another process, and an outcome term, if it has one, of 0 or 1.

    Raises
        AssertionError: with the completion that shows the fault.
    """
    scorer = reward if isinstance(reward, Reward) else FunctionReward("value", reward)
    prompts = sample_of(task, num_prompts)
    assert prompts, f"task {task.name!r} has no prompts to check the reward on"
    others = [*prompts[1:], prompts[0]]
    items = [
        (prompt, completion_of(prompt, text))
        for prompt, other in zip(prompts, others, strict=True)
        for text in (task.oracle(prompt), *(make(prompt, other) for make in ATTACKS.values()))
    ]
    first = [_scored(scorer, prompt, completion) for prompt, completion in items]
    for (prompt, completion), terms in zip(items, first, strict=True):
        shown = f"{completion.text[:80]!r} on prompt {prompt.text[:80]!r}"
        assert terms.keys() == first[0].keys(), f"term names change: {sorted(terms)} for {shown}"
        assert terms.get("outcome", 0.0) in (0.0, 1.0), f"outcome {terms['outcome']} for {shown}"
    _check_repeatable(scorer, items, first)


def _scored(reward: Reward, prompt: Prompt, completion: Completion) -> dict[str, float]:
    shown = f"{completion.text[:80]!r} on prompt {prompt.text[:80]!r}"
    terms: Mapping[str, Any] = reward.score(prompt, completion)
    assert isinstance(terms, Mapping) and terms, f"score gave {terms!r} for {shown}"
    for name, value in terms.items():
        assert isinstance(value, Real), f"term {name!r} is a {type(value).__name__} for {shown}"
        assert math.isfinite(value), f"term {name!r} is {value} for {shown}"
    return {str(name): float(value) for name, value in terms.items()}


def _check_repeatable(
    reward: Reward,
    items: Sequence[tuple[Prompt, Completion]],
    first: Sequence[Mapping[str, float]],
) -> None:
    again = [_scored(reward, *item) for item in reversed(items)][::-1]
    assert again == list(first), "the same completions scored again, in another order, differ"
    try:
        copied: Reward = pickle.loads(pickle.dumps(reward))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise AssertionError(f"the reward cannot be sent to a worker: {error}") from error
    copies = [_scored(copied, *item) for item in items]
    assert copies == list(first), "a pickled copy scores the same completions otherwise"
