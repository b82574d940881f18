"""Caveats and forecast refusals as sentences, beside the reasons of `reasons.py`."""

# ruff: noqa: RUF001  (Chinese punctuation is meant)
from __future__ import annotations

from collections.abc import Mapping

CAVEAT_TRIMMED = "caveat_trimmed"
CAVEAT_FEW_SEEDS = "caveat_few_seeds"
CAVEAT_LONG_ONE_SEED = "caveat_long_one_seed"
CAVEAT_PENDING = "caveat_pending"
CAVEAT_STOPPED = "caveat_stopped"
CAVEAT_NO_CONTROL = "caveat_no_control"
CAVEAT_NO_ADJUSTED = "caveat_no_adjusted"
CAVEAT_MISTUNED_CONTROL = "caveat_mistuned_control"
CAVEAT_CONTROL_BETTER = "caveat_control_better"
CAVEAT_CONTROL_BROKEN = "caveat_control_broken"
CAVEAT_LOWER_NOISE = "caveat_lower_noise"
CAVEAT_LOWER_CEILING = "caveat_lower_ceiling"
CAVEAT_LOWER_TUNING = "caveat_lower_tuning"
CAVEAT_LOWER_HEALTH = "caveat_lower_health"
CAVEAT_LOWER_RISING = "caveat_lower_rising"
CAVEAT_LOWER_UNKNOWN = "caveat_lower_unknown"
CAVEAT_CEILING = "caveat_ceiling"
CAVEAT_SMALL_EVAL = "caveat_small_eval"
CAVEAT_CONTRAST = "caveat_contrast"
CAVEAT_POINT_MISSING = "caveat_point_missing"
NO_REASON = "no_reason"
"""Value that stands for a missing reason; translated."""
REFUSED_POINTS = "refused_points"
REFUSED_RANGE = "refused_range"
REFUSED_SEEDS = "refused_seeds"

CAVEAT_TEXTS: Mapping[str, tuple[str, str]] = {
    CAVEAT_TRIMMED: (
        "The budget trimmed the plan: {what}.",
        "预算裁剪了计划：{what}。",
    ),
    CAVEAT_FEW_SEEDS: (
        "{axis} {point} has only {n} seed(s); below 3 no point carries a claim of its own.",
        "{axis} {point} 只有 {n} 个种子；少于 3 个时该点不能单独支撑结论。",
    ),
    CAVEAT_LONG_ONE_SEED: (
        "The longer run ({point}x the steps) has 1 seed; its interval borrows the spread of the other points.",
        "较长的运行（{point} 倍步数）只有 1 个种子；其区间借用其他点的离散程度。",
    ),
    CAVEAT_PENDING: (
        "{n} run(s) of the plan have not ended; the numbers here are without them.",
        "计划中有 {n} 个运行尚未结束；此处数字不含它们。",
    ),
    CAVEAT_STOPPED: (
        "{cell} was {state} ({reason}); its last score is counted where it has one.",
        "{cell} 状态为 {state}（{reason}）；若有最后分数则已计入。",
    ),
    CAVEAT_NO_CONTROL: (
        "No unadjusted control at {point}: what {axis} does there is size + mis-tuning, not size alone.",
        "{point} 没有未调整的对照组：{axis}在此的效果是“规模 + 失调”，而不只是规模。",
    ),
    CAVEAT_NO_ADJUSTED: (
        "Hyper-parameters did not move with {axis}: read its curve as size + mis-tuning.",
        "超参数没有随{axis}调整：其曲线应读作“规模 + 失调”。",
    ),
    CAVEAT_MISTUNED_CONTROL: (
        "With untouched hyper-parameters {point} ends {difference:+.2f} against the adjusted arm ({low:+.2f} to {high:+.2f}, {n} seeds): that fall is size + mis-tuning, not size.",
        "超参数不动时，{point} 相对调整组为 {difference:+.2f}（{low:+.2f} 至 {high:+.2f}，{n} 个种子）：这一下降是“规模 + 失调”，而不是规模本身。",
    ),
    CAVEAT_CONTROL_BETTER: (
        "At {point} the untouched hyper-parameters end higher, by {difference:+.2f} ({low:+.2f} to {high:+.2f}, {n} seeds): the adjustment rules hurt here.",
        "在 {point}，未调整的超参数更高，差 {difference:+.2f}（{low:+.2f} 至 {high:+.2f}，{n} 个种子）：调整规则在此有害。",
    ),
    CAVEAT_CONTROL_BROKEN: (
        "The unadjusted control broke on {num_bad} of {n} runs; the verdict does not count it.",
        "未调整的对照组在 {n} 个运行中有 {num_bad} 个崩坏；结论不计入它。",
    ),
    CAVEAT_LOWER_NOISE: (
        "{point} ends {difference:+.3f} against the base size ({low:+.3f} to {high:+.3f}, {n} seeds): within the spread of seeds.",
        "{point} 相对基准规模为 {difference:+.3f}（{low:+.3f} 至 {high:+.3f}，{n} 个种子）：在种子波动范围内。",
    ),
    CAVEAT_LOWER_CEILING: (
        "{point} ends {difference:+.3f} against the base size ({n} seeds); at {score:.2f} the task is near its ceiling and cannot part sizes.",
        "{point} 相对基准规模为 {difference:+.3f}（{n} 个种子）；分数 {score:.2f} 已接近上限，任务无法区分规模。",
    ),
    CAVEAT_LOWER_TUNING: (
        "{point} ends {difference:+.2f} against the base size ({n} seeds), yet {control:+.2f} without adjustment: the rules, not the size, hold it back.",
        "{point} 相对基准规模为 {difference:+.2f}（{n} 个种子），不调整时却是 {control:+.2f}：拖累它的是规则，不是规模。",
    ),
    CAVEAT_LOWER_HEALTH: (
        "{point} ends {difference:+.2f} against the base size ({n} seeds); {num_bad} of its runs broke, which explains it.",
        "{point} 相对基准规模为 {difference:+.2f}（{n} 个种子）；其中 {num_bad} 个运行崩坏，可以解释。",
    ),
    CAVEAT_LOWER_RISING: (
        "{point} ends {difference:+.2f} against the base size ({n} seeds) and was still rising ({rise:+.3f} over its last third): it needs more steps before it can be judged.",
        "{point} 相对基准规模为 {difference:+.2f}（{n} 个种子），且仍在上升（后三分之一 {rise:+.3f}）：需要更多步数才能判断。",
    ),
    CAVEAT_LOWER_UNKNOWN: (
        "{point} ends {difference:+.2f} against the base size ({low:+.2f} to {high:+.2f}, {n} seeds); nothing in the records explains it.",
        "{point} 相对基准规模为 {difference:+.2f}（{low:+.2f} 至 {high:+.2f}，{n} 个种子）；记录中没有可解释的原因。",
    ),
    CAVEAT_CEILING: (
        "The base point ends at {score:.2f}: the task is near its ceiling, so no axis can show much of a gain.",
        "基准点分数达 {score:.2f}：任务接近上限，任何轴都难以显示提升。",
    ),
    CAVEAT_SMALL_EVAL: (
        "The evaluation has {items} samples: its own error is about {error:.3f} a run, more than the margin of {margin:.2f}.",
        "评测只有 {items} 个样本：单次误差约 {error:.3f}，大于容许值 {margin:.2f}。",
    ),
    CAVEAT_CONTRAST: (
        "The stated contrast {contrast} could not be measured; it still counts in the correction for many claims.",
        "事先声明的对比 {contrast} 无法测得；它仍计入多重比较校正。",
    ),
    CAVEAT_POINT_MISSING: (
        "{axis} {point} has no score from any of its {n} planned runs and is not on the curve.",
        "{axis} {point} 计划的 {n} 个运行都没有分数，未画在曲线上。",
    ),
    REFUSED_POINTS: (
        "No forecast: fewer than 3 points on this axis.",
        "不作预测：此轴少于 3 个点。",
    ),
    REFUSED_RANGE: (
        "No forecast: it would reach beyond 4x of the measured range.",
        "不作预测：会超出测量范围的 4 倍。",
    ),
    REFUSED_SEEDS: (
        "No forecast: fewer than 2 runs with 3 evaluations each.",
        "不作预测：具有 3 次评测的运行少于 2 个。",
    ),
}  # fmt: skip
