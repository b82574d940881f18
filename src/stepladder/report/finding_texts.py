"""Findings in words: key -> (title, what it means, what to do), each in English and 简体中文.

Keys are detector ids of `detectors.md`, or `validation` for a cell that failed its validation.
"""

# ruff: noqa: RUF001  (Chinese punctuation is meant)
from __future__ import annotations

from collections.abc import Mapping

Pair = tuple[str, str]

# fmt: off
FINDINGS: Mapping[str, tuple[Pair, Pair, Pair]] = {
    "R1": (
        ("reward collapse", "奖励崩塌"),
        ("The reward fell far below its best level, by more than its own noise, and stayed there.",
         "奖励明显跌破其最好水平，跌幅超过自身噪声，且没有恢复。"),
        ("Go back to the last good checkpoint; look at the first metric that moved before the fall.",
         "回到最后一个正常的检查点；查看下跌之前最先变动的指标。"),
    ),
    "K1": (
        ("KL runaway", "KL 失控"),
        ("The policy moved away from its reference much faster than it did early in the run.",
         "策略偏离参考模型的速度远高于训练早期。"),
        ("Raise kl.coef or lower optim.lr; check whether a reward term changed scale at that step.",
         "提高 kl.coef 或降低 optim.lr；检查该步附近是否有奖励分量的尺度发生变化。"),
    ),
    "E1": (
        ("entropy low", "熵过低"),
        ("Entropy fell below a tenth of its early level while the reward did not rise.",
         "熵降到早期水平的十分之一以下，而奖励没有上升。"),
        ("Raise the upper clip or the entropy coefficient; use harder prompts; keep temperature 1.",
         "提高裁剪上界或熵系数；使用更难的提示；采样温度保持 1。"),
    ),
    "G1": (
        ("gradient fault", "梯度异常"),
        ("The gradient norm or an advantage was not finite, or rose far above its usual level.",
         "梯度范数或优势值出现非有限值，或远超其通常水平。"),
        ("Look at that step's rollouts; keep the floor on the group's deviation; lower optim.lr.",
         "查看该步的采样；保留组内标准差下限；降低 optim.lr。"),
    ),
    "U1": (
        ("updates left out", "更新被跳过"),
        ("For several steps in a row no update was applied: non-finite gradients, alarms or the KL cap.",
         "连续多步没有任何更新生效：梯度非有限、梯度警报或触及 KL 上限。"),
        ("Look at the events of those steps; lower optim.lr or raise kl.coef.",
         "查看这些步的事件记录；降低 optim.lr 或提高 kl.coef。"),
    ),
    "L2": (
        ("truncation", "截断"),
        ("Many completions were cut at the token limit and so could not earn the outcome reward.",
         "大量回答在长度上限处被截断，因而拿不到结果奖励。"),
        ("Raise sampling.max_new_tokens, or check that the policy can end its answer.",
         "提高 sampling.max_new_tokens，或检查策略能否正常结束回答。"),
    ),
    "Z1": (
        ("groups without signal", "无信号的组"),
        ("In most groups all samples earned the same reward, so that they taught nothing.",
         "多数组内所有样本的奖励相同，没有产生学习信号。"),
        ("Use prompts of middling difficulty or more samples per prompt.",
         "使用难度适中的提示，或增加每个提示的采样数。"),
    ),
    "N1": (
        ("non-finite value", "非有限值"),
        ("A training metric was NaN or infinite.", "某个训练指标为 NaN 或无穷大。"),
        ("Treat every number after that step as void; lower optim.lr and look at the step's rollouts.",
         "该步之后的数字均不可信；降低 optim.lr 并查看该步的采样。"),
    ),
    "validation": (
        ("validation failed", "验证未通过"),
        ("The short validation at the start of the cell failed, so the cell was stopped early.",
         "该单元开头的短验证未通过，因此提前停止。"),
        ("Mend the recipe of this cell before spending its full budget.",
         "先修正该单元的配方，再投入全部预算。"),
    ),
}

CAUSES: Mapping[str, Pair] = {
    "mismatch": ("train and rollout policies differ", "训练与采样策略不一致"),
    "lr": ("the learning rate is too high", "学习率过高"),
    "kl_coef": ("the KL coefficient is too small for the reward's scale", "KL 系数相对奖励尺度过小"),
    "reward_changed": ("the reward changed or raised errors", "奖励函数发生变化或报错"),
    "gradient": ("a gradient event came just before", "此前出现梯度事件"),
    "truncation": ("completions are cut at the limit", "回答在上限处被截断"),
    "saturated": ("the reward is saturated", "奖励已饱和"),
    "too_easy": ("the prompts are too easy", "提示过易"),
    "too_hard": ("the prompts are too hard", "提示过难"),
}
# fmt: on
