"""Reasons: every sentence that a verdict can say, by key, in English and Simplified Chinese.

`TEXTS` holds str.format templates; `VALUES` the names each needs. Numbers are pass@1 shares unless
they say otherwise. The report prints them through `sentence`; metric names are never translated.
"""

# ruff: noqa: RUF001  (Chinese punctuation is meant)
from __future__ import annotations

from collections.abc import Mapping
from string import Formatter

from stepladder.core.result import Reason
from stepladder.study.caveat_texts import CAVEAT_TEXTS, NO_REASON

# Reasons of the four questions.
GAIN_ENOUGH = "gain_enough"
GAIN_TOO_SMALL = "gain_too_small"
GAIN_UNDECIDED = "gain_undecided"
GAIN_UNEVEN = "gain_uneven"
GAIN_NO_ROOM = "gain_no_room"
GAIN_NO_INTERVAL = "gain_no_interval"
GAIN_NOT_MEASURED = "gain_not_measured"
SCALE_HOLDS = "scale_holds"
SCALE_FALLS = "scale_falls"
SCALE_UNDECIDED = "scale_undecided"
SCALE_DIPS = "scale_dips"
SCALE_MISTUNED = "scale_mistuned"
SCALE_NO_INTERVAL = "scale_no_interval"
SCALE_NOT_MEASURED = "scale_not_measured"
HEALTH_CLEAN = "health_clean"
HEALTH_BROKEN = "health_broken"
HEALTH_SOME = "health_some"
HEALTH_STUDY = "health_study"
HEALTH_PENDING = "health_pending"
TREND_FORECAST = "trend_forecast"
TREND_OWN_GAIN = "trend_own_gain"
TREND_OPEN = "trend_open"
TREND_FALLS = "trend_falls"
TREND_NO_FORECAST = "trend_no_forecast"
# Where the next unit of compute goes.
SPEND_AXIS = "spend_axis"
SPEND_TIE = "spend_tie"
SPEND_UNDECIDED = "spend_undecided"
SPEND_NO_AXIS_GAINS = "spend_no_axis_gains"
SPEND_NO_FORECAST = "spend_no_forecast"
SPEND_REPAIR = "spend_repair"
SPEND_CHANGE_RECIPE = "spend_change_recipe"
DECIDE_DIP = "decide_dip"
DECIDE_FINISH = "decide_finish"
DECIDE_SEEDS = "decide_seeds"
DECIDE_STEPS = "decide_steps"
DECIDE_RERUN = "decide_rerun"
DECIDE_ADJUSTED = "decide_adjusted"
DECIDE_HARDER_TASK = "decide_harder_task"
DECIDE_TOO_CLOSE = "decide_too_close"
DECIDE_MEASURE = "decide_measure"
DECIDE_FORECAST = "decide_forecast"
DECIDE_SECOND_POINT = "decide_second_point"
DECIDE_STUDY_FINDING = "decide_study_finding"
BASE_POINT = "base_point"
"""Value that stands for the base point; translated."""
# What would change the answer.
CHANGE_GAIN_LOW = "change_gain_low"
CHANGE_SCALE_LOW = "change_scale_low"
CHANGE_GAIN_HIGH = "change_gain_high"
CHANGE_SCALE_HIGH = "change_scale_high"
CHANGE_HEALTH = "change_health"
CHANGE_TREND = "change_trend"
CHANGE_DECIDING = "change_deciding"
# How far to trust it.
CONFIDENCE_HIGH = "confidence_high"
CONFIDENCE_MODERATE = "confidence_moderate"
CONFIDENCE_LOW_SEEDS = "confidence_low_seeds"
CONFIDENCE_LOW_POINTS = "confidence_low_points"
CONFIDENCE_LOW_OPEN = "confidence_low_open"
CONFIDENCE_LOW_PENDING = "confidence_low_pending"

_OWN: Mapping[str, tuple[str, str]] = {
    GAIN_ENOUGH: (
        "Training works at the base point: pass@1 {gain:+.2f} over the base policy, 95 % interval {low:+.2f} to {high:+.2f}, {n} seeds, every one up; the line was {line:+.2f}.",
        "基准点训练有效：pass@1 比基础策略 {gain:+.2f}，95% 区间 {low:+.2f} 至 {high:+.2f}，{n} 个种子全部上升；要求是 {line:+.2f}。",
    ),
    GAIN_TOO_SMALL: (
        "Training gains too little at the base point: {gain:+.2f} over the base policy, 95 % interval {low:+.2f} to {high:+.2f}, {n} seeds; even the upper end is below {line:+.2f}.",
        "基准点收益太小：比基础策略 {gain:+.2f}，95% 区间 {low:+.2f} 至 {high:+.2f}，{n} 个种子；连上限也低于 {line:+.2f}。",
    ),
    GAIN_UNDECIDED: (
        "The gain at the base point is not settled: {gain:+.2f}, 95 % interval {low:+.2f} to {high:+.2f}, {n} seeds; the line of {line:+.2f} lies inside.",
        "基准点收益尚无定论：{gain:+.2f}，95% 区间 {low:+.2f} 至 {high:+.2f}，{n} 个种子；要求 {line:+.2f} 落在区间内。",
    ),
    GAIN_UNEVEN: (
        "Not every seed learned: mean gain {gain:+.2f} ({low:+.2f} to {high:+.2f}), but {num_down} of {n} seeds ended no higher than they began.",
        "并非每个种子都学会：平均收益 {gain:+.2f}（{low:+.2f} 至 {high:+.2f}），但 {n} 个种子中有 {num_down} 个没有高于起点。",
    ),
    GAIN_NO_ROOM: (
        "The base policy already scores {base_score:.2f}: a gain of {line:+.2f} has no room on this task (measured {gain:+.2f}, {low:+.2f} to {high:+.2f}, {n} seeds).",
        "基础策略已达 {base_score:.2f}：此任务没有 {line:+.2f} 的提升空间（实测 {gain:+.2f}，{low:+.2f} 至 {high:+.2f}，{n} 个种子）。",
    ),
    GAIN_NO_INTERVAL: (
        "The gain at the base point is {gain:+.2f} from {n} seed(s): too few for an interval, so nothing follows.",
        "基准点收益为 {gain:+.2f}，仅 {n} 个种子：不足以给出区间，无法下结论。",
    ),
    GAIN_NOT_MEASURED: (
        "The gain over the base policy was never measured: no finished base run has a score before and after training.",
        "相对基础策略的收益没有测到：没有任何完成的基准运行同时具有训练前后的分数。",
    ),
    SCALE_HOLDS: (
        "Climbing {axis} from {start} to {end} does not cost score: {difference:+.2f}, 95 % interval {low:+.2f} to {high:+.2f}, {n} seeds; a fall of up to {margin:.2f} was allowed.",
        "{axis}从 {start} 到 {end} 没有掉分：{difference:+.2f}，95% 区间 {low:+.2f} 至 {high:+.2f}，{n} 个种子；允许下降 {margin:.2f}。",
    ),
    SCALE_FALLS: (
        "Climbing {axis} from {start} to {end} breaks it: {difference:+.2f}, 95 % interval {low:+.2f} to {high:+.2f}, {n} seeds; worse than the allowed fall of {margin:.2f}.",
        "{axis}从 {start} 到 {end} 出现退化：{difference:+.2f}，95% 区间 {low:+.2f} 至 {high:+.2f}，{n} 个种子；超过允许的下降 {margin:.2f}。",
    ),
    SCALE_UNDECIDED: (
        "Whether {axis} holds from {start} to {end} is not settled: {difference:+.2f}, 95 % interval {low:+.2f} to {high:+.2f}, {n} seeds; a fall of more than {margin:.2f} is not ruled out.",
        "{axis}从 {start} 到 {end} 是否保持尚无定论：{difference:+.2f}，95% 区间 {low:+.2f} 至 {high:+.2f}，{n} 个种子；不能排除超过 {margin:.2f} 的下降。",
    ),
    SCALE_DIPS: (
        "{end} ends {difference:+.2f} against {start} (95 % interval {low:+.2f} to {high:+.2f}, {n} seeds) although a larger point holds: size is not the cause there, so its base policy ({end_base:.2f} against {start_base:.2f} before RL) or its settings are; the trend cannot be read.",
        "{end} 相对 {start} 为 {difference:+.2f}（95% 区间 {low:+.2f} 至 {high:+.2f}，{n} 个种子），而更大的点并未退化：原因不在规模，而在其基础策略（RL 前为 {end_base:.2f}，{start} 为 {start_base:.2f}）或设置；趋势无法判断。",
    ),
    SCALE_MISTUNED: (
        "{end} ends {difference:+.2f} against {start} ({low:+.2f} to {high:+.2f}, {n} seeds) with untouched hyper-parameters: this is size + mis-tuning, so it does not show that size fails.",
        "超参数未调整时，{end} 相对 {start} 为 {difference:+.2f}（{low:+.2f} 至 {high:+.2f}，{n} 个种子）：这是“规模 + 失调”的混合结果，不能说明规模无效。",
    ),
    SCALE_NO_INTERVAL: (
        "{axis} from {start} to {end}: {difference:+.2f} from {n} seed(s), too few for an interval.",
        "{axis}从 {start} 到 {end}：{difference:+.2f}，仅 {n} 个种子，不足以给出区间。",
    ),
    SCALE_NOT_MEASURED: (
        "Nothing was measured along {axis} beyond the base point, so how it scales is unknown.",
        "{axis}上没有基准点以外的测量，无法判断其扩展性。",
    ),
    HEALTH_CLEAN: (
        "No recommended run broke: {n} of {n} ended by themselves, no critical health finding.",
        "推荐设置的运行全部健康：{n} 个运行全部正常结束，没有严重告警。",
    ),
    HEALTH_BROKEN: (
        "Runs break at {axis} {point}: {num_bad} of {n} seeds were stopped or had a critical finding ({detectors}).",
        "{axis} {point} 处运行崩坏：{n} 个种子中有 {num_bad} 个被中止或出现严重告警（{detectors}）。",
    ),
    HEALTH_SOME: (
        "{num_bad} of {n} recommended runs were stopped, failed or had a critical finding ({detectors}); first: {cell}.",
        "{n} 个推荐运行中有 {num_bad} 个被中止、失败或出现严重告警（{detectors}）；首个：{cell}。",
    ),
    HEALTH_STUDY: (
        "The study itself has {num_bad} critical finding(s) ({detectors}), over {n} recommended runs.",
        "研究本身有 {num_bad} 个严重告警（{detectors}），涉及 {n} 个推荐运行。",
    ),
    HEALTH_PENDING: (
        "{num_pending} of {n} recommended runs have not ended; those that did show no critical finding.",
        "{n} 个推荐运行中有 {num_pending} 个尚未结束；已结束的没有严重告警。",
    ),
    TREND_FORECAST: (
        "There is more to come: the next doubling of {axis} is forecast to gain {gain:+.3f}, 95 % interval {low:+.3f} to {high:+.3f}, {n} scores behind it.",
        "仍有上升空间：{axis}再翻一倍预计 {gain:+.3f}，95% 区间 {low:+.3f} 至 {high:+.3f}，依据 {n} 个分数。",
    ),
    TREND_OWN_GAIN: (
        "The largest size learns in its own right: {label} gains {gain:+.2f} over its own base policy, 95 % interval {low:+.2f} to {high:+.2f}, {n} seeds.",
        "最大规模自身也在学习：{label} 比自己的基础策略 {gain:+.2f}，95% 区间 {low:+.2f} 至 {high:+.2f}，{n} 个种子。",
    ),
    TREND_OPEN: (
        "No axis is shown to gain further: the best forecast is {axis} {gain:+.3f}, 95 % interval {low:+.3f} to {high:+.3f}, {n} scores behind it.",
        "没有任何轴被证明还能提升：最好的预测是{axis} {gain:+.3f}，95% 区间 {low:+.3f} 至 {high:+.3f}，依据 {n} 个分数。",
    ),
    TREND_FALLS: (
        "The trend points down: at {ratio:g}x of the largest point of {axis} the score is forecast {gain:+.3f} against the base point, 95 % interval {low:+.3f} to {high:+.3f}, {n} scores behind it.",
        "趋势向下：{axis}达到最大点的 {ratio:g} 倍时预计比基准点 {gain:+.3f}，95% 区间 {low:+.3f} 至 {high:+.3f}，依据 {n} 个分数。",
    ),
    TREND_NO_FORECAST: (
        "No axis has the {n} points that an honest forecast needs.",
        "没有任何轴具备可信预测所需的 {n} 个点。",
    ),
    SPEND_AXIS: (
        "Next, double {axis} ({start} to {end}): forecast {gain:+.3f} at the same added cost as the others ({low:+.3f} to {high:+.3f}); it is the best with probability {p_best:.0%}.",
        "下一步将{axis}翻倍（{start} 到 {end}）：同等新增成本下预计 {gain:+.3f}（{low:+.3f} 至 {high:+.3f}）；是最佳选择的概率 {p_best:.0%}。",
    ),
    SPEND_TIE: (
        "{axis} and {second} are forecast to gain the same at equal added cost ({gain:+.3f}); more seeds will hardly part them: take the one that is easier to run.",
        "同等新增成本下{axis}与{second}预计收益相同（{gain:+.3f}）；增加种子也难以区分：选更容易运行的。",
    ),
    SPEND_UNDECIDED: (
        "Which axis to climb is undecided: {axis} is best with probability {p_best:.0%}, {second} next. {seeds} seed(s) of the doubling itself, {point}, would part them, about {cost_s:.0f} s.",
        "该爬哪个轴尚无定论：{axis}最佳的概率为 {p_best:.0%}，其次是{second}。直接实测翻倍点 {point}（{seeds} 个种子）即可区分，约 {cost_s:.0f} 秒。",
    ),
    SPEND_NO_AXIS_GAINS: (
        "No axis is forecast to gain even {line:.2f} from one more doubling: spend on harder prompts or a better reward instead.",
        "任何轴再翻一倍预计都不到 {line:.2f}：应投入更难的题目或更好的奖励。",
    ),
    SPEND_NO_FORECAST: (
        "Axes cannot be compared ({num_forecasts} of {num_axes} has a forecast with a known cost): measure a third point on the axis you want to climb, with {seeds} seeds.",
        "无法比较各轴（{num_axes} 个中只有 {num_forecasts} 个有成本已知的预测）：请在想扩展的轴上用 {seeds} 个种子测第三个点。",
    ),
    SPEND_REPAIR: (
        "Do not climb yet. Mend what broke at {axis} {point} first, then repeat its {seeds} seeds, about {cost_s:.0f} s.",
        "先不要扩展。先修复 {axis} {point} 处的问题，再重跑其 {seeds} 个种子，约 {cost_s:.0f} 秒。",
    ),
    SPEND_CHANGE_RECIPE: (
        "Do not climb with this recipe. Change one thing (learning rate first) at {point} and repeat {seeds} seeds, about {cost_s:.0f} s.",
        "不要用此配方继续扩展。在 {point} 改动一项（先试学习率）并重跑 {seeds} 个种子，约 {cost_s:.0f} 秒。",
    ),
    DECIDE_DIP: (
        "Give {point} another base policy or learning rate and repeat {seeds} seeds, about {cost_s:.0f} s: one rung off the line hides the trend.",
        "为 {point} 更换基础策略或学习率，并重跑 {seeds} 个种子，约 {cost_s:.0f} 秒：一个偏离的规模会掩盖趋势。",
    ),
    DECIDE_FINISH: (
        "Finish the study: {num_pending} run(s) are still to come; run the same command again.",
        "先完成研究：还有 {num_pending} 个运行未结束；再次执行同一命令即可。",
    ),
    DECIDE_SEEDS: (
        "Run {seeds} more seed(s) at {point}, about {cost_s:.0f} s: with a seed spread of {sd:.3f} that parts a gap of {gap:.3f} four times in five.",
        "在 {point} 再跑 {seeds} 个种子，约 {cost_s:.0f} 秒：种子间标准差 {sd:.3f} 时，五次中有四次能分辨 {gap:.3f} 的差距。",
    ),
    DECIDE_STEPS: (
        "Train longer: {factor:g}x the steps at the base point is forecast to bring the gain to {forecast:+.2f}, about {cost_s:.0f} s, cheaper than more seeds.",
        "延长训练：基准点训练 {factor:g} 倍步数预计收益达到 {forecast:+.2f}，约 {cost_s:.0f} 秒，比增加种子更便宜。",
    ),
    DECIDE_RERUN: (
        "Look at {cell} first, then run {seeds} fresh seed(s) at {point}, about {cost_s:.0f} s, to see whether it happens again.",
        "先查看 {cell}，再在 {point} 跑 {seeds} 个新种子，约 {cost_s:.0f} 秒，看是否重现。",
    ),
    DECIDE_ADJUSTED: (
        "Run the co-adjusted arm at {point}, {seeds} seeds, about {cost_s:.0f} s: without it size and mis-tuning cannot be told apart.",
        "在 {point} 运行协同调整组，{seeds} 个种子，约 {cost_s:.0f} 秒：没有它无法区分规模与失调。",
    ),
    DECIDE_HARDER_TASK: (
        "Make the task harder and repeat: at {score:.2f} it is too near its ceiling to show a gain.",
        "提高任务难度后重做：分数 {score:.2f} 已接近上限，看不出提升。",
    ),
    DECIDE_TOO_CLOSE: (
        "More seeds will not decide it: {point} lies {gap:.3f} from the line, the seed spread is {sd:.3f}. Train longer or move the line.",
        "增加种子无法定论：{point} 距离界线 {gap:.3f}，而种子间标准差为 {sd:.3f}。请延长训练或调整界线。",
    ),
    DECIDE_MEASURE: (
        "Measure {point} with {seeds} seeds; it has none that ended with a score.",
        "用 {seeds} 个种子测量 {point}；目前没有带分数结束的运行。",
    ),
    DECIDE_FORECAST: (
        "Add a point to {axis} beyond {start}, {seeds} seeds: a forecast is too wide to say that anything still gains.",
        "在{axis}上 {start} 之外增加一个点，{seeds} 个种子：目前的预测太宽，无法判断是否仍有提升。",
    ),
    DECIDE_SECOND_POINT: (
        "Measure a second point on {axis}, {seeds} seeds.",
        "在{axis}上测量第二个点，{seeds} 个种子。",
    ),
    DECIDE_STUDY_FINDING: (
        "Clear up the study's own critical finding first ({detectors}); until then no run of it counts.",
        "先处理研究本身的严重告警（{detectors}）；在此之前其运行都不算数。",
    ),
    CHANGE_GAIN_LOW: (
        "GO would fall if the lower end of the gain, now {low:+.2f}, dropped below {line:+.2f}.",
        "若收益下限（现为 {low:+.2f}）跌破 {line:+.2f}，则不再 GO。",
    ),
    CHANGE_SCALE_LOW: (
        "GO would fall if the lower end of {end} against {start}, now {low:+.2f}, dropped below {line:+.2f}, or if a run there broke.",
        "若 {end} 相对 {start} 的下限（现为 {low:+.2f}）跌破 {line:+.2f}，或其中有运行崩坏，则不再 GO。",
    ),
    CHANGE_GAIN_HIGH: (
        "A recipe whose gain reaches {line:+.2f} in its upper end, now {high:+.2f}, would reopen the question.",
        "若新配方的收益上限（现为 {high:+.2f}）达到 {line:+.2f}，问题可重新讨论。",
    ),
    CHANGE_SCALE_HIGH: (
        "A recipe under which {end} ends at most {margin:.2f} below {start} (now {difference:+.2f}) would reopen the question.",
        "若新配方使 {end} 比 {start} 最多低 {margin:.2f}（现为 {difference:+.2f}），问题可重新讨论。",
    ),
    CHANGE_HEALTH: (
        "Runs at {point} that end by themselves without a critical finding on all of {n} seeds would reopen the question.",
        "若 {point} 的 {n} 个种子都正常结束且无严重告警，问题可重新讨论。",
    ),
    CHANGE_TREND: (
        "A point beyond {start} on {axis} that does not fall (forecast now {gain:+.3f}) would reopen the question.",
        "若{axis}上 {start} 之外的点没有下降（现预测 {gain:+.3f}），问题可重新讨论。",
    ),
    CHANGE_DECIDING: (
        "The run named as next spend: its result turns this into GO or NO-GO ({num_open} question(s) open).",
        "“下一步投入”所列的运行：其结果会把结论变为 GO 或 NO-GO（还有 {num_open} 个问题未定）。",
    ),
    CONFIDENCE_HIGH: (
        "High: at least {seeds} seeds a point, {points} points on {axis}, nothing trimmed, and every bound clears its line by half its width or more.",
        "高：每点至少 {seeds} 个种子，{axis}上 {points} 个点，没有裁剪，各区间都以半宽以上的余量越过界线。",
    ),
    CONFIDENCE_MODERATE: (
        "Moderate: at least {seeds} seeds a point and {points} points on {axis}.",
        "中：每点至少 {seeds} 个种子，{axis}上 {points} 个点。",
    ),
    CONFIDENCE_LOW_SEEDS: (
        "Low: a point that decides has only {seeds} seed(s).",
        "低：起决定作用的点只有 {seeds} 个种子。",
    ),
    CONFIDENCE_LOW_POINTS: (
        "Low: {axis} has only {points} point(s), too few to see a bend.",
        "低：{axis}上只有 {points} 个点，看不出弯折。",
    ),
    CONFIDENCE_LOW_OPEN: (
        "Low: {num_open} of 4 questions are open.",
        "低：4 个问题中有 {num_open} 个未定。",
    ),
    CONFIDENCE_LOW_PENDING: (
        "Low: {num_pending} run(s) have not ended.",
        "低：有 {num_pending} 个运行尚未结束。",
    ),
}  # fmt: skip

TEXTS: Mapping[str, Mapping[str, str]] = {
    key: {"en": english, "zh": chinese}
    for key, (english, chinese) in {**_OWN, **CAVEAT_TEXTS}.items()
}
"""Key -> language -> template."""

WORDS: Mapping[str, Mapping[str, str]] = {
    "model": {"en": "model size", "zh": "模型规模"},
    "samples_per_prompt": {"en": "samples per prompt", "zh": "每题采样数"},
    "steps": {"en": "training steps", "zh": "训练步数"},
    BASE_POINT: {"en": "the base point", "zh": "基准点"},
    NO_REASON: {"en": "no reason was recorded", "zh": "未记录原因"},
}
"""Value -> language -> words: axes and placeholders. Settings such as model=x2 are left as they are."""
_AXIS_PLACES = ("axis", "second")
_PLACEHOLDER_PLACES = ("point", "start", "reason")
_PLACEHOLDERS = (BASE_POINT, NO_REASON)


def names_of(template: str) -> frozenset[str]:
    """Return the value names that a template needs."""
    return frozenset(name for _, name, _, _ in Formatter().parse(template) if name)


VALUES: Mapping[str, frozenset[str]] = {key: names_of(text["en"]) for key, text in TEXTS.items()}
"""Key -> names of the values that it needs."""


def sentence(reason: Reason, lang: str = "en") -> str:
    """Return a reason as a sentence; a language that is not there falls back to English."""
    texts = TEXTS[reason.key]
    values = {
        name: _word(value, lang) if _is_word(name, value) else value
        for name, value in reason.values.items()
    }
    template = texts.get(lang, texts["en"])
    text = template.format(**values)
    # Only a translated axis may be capitalised; names such as ladder-x1 stay as they are.
    return text[:1].upper() + text[1:] if template.startswith("{axis}") else text


def _is_word(place: str, value: float | int | str) -> bool:
    """Return whether a value is ours to translate: a model folder may be called `model`."""
    return place in _AXIS_PLACES or (place in _PLACEHOLDER_PLACES and value in _PLACEHOLDERS)


def _word(value: float | int | str, lang: str) -> float | int | str:
    known = WORDS.get(str(value))
    return value if known is None else known.get(lang, known["en"])
