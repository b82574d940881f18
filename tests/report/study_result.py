"""A rich synthetic StudyResult: made-up numbers, names that say so. For tests of the report only."""

from __future__ import annotations

import math
import random
import statistics

from stepladder.core.finding import Evidence, Finding, Outcome, Severity
from stepladder.core.result import (
    Answer,
    CellResult,
    Curve,
    CurvePoint,
    Effect,
    Fit,
    Forecast,
    Interval,
    Reason,
    SettingChange,
    StudyResult,
    Trajectory,
    Verdict,
)
from stepladder.study import reasons as say

SIZES = {"synthetic-x1": 1.0, "synthetic-x2": 2.0, "synthetic-x4": 4.0}
BASE_SCORE = {"synthetic-x1": 0.24, "synthetic-x2": 0.29, "synthetic-x4": 0.33}
FINAL = {
    ("synthetic-x1", 8, "base"): 0.56,
    ("synthetic-x2", 8, "adjusted"): 0.66,
    ("synthetic-x4", 8, "adjusted"): 0.71,
    ("synthetic-x2", 8, "unadjusted"): 0.63,
    ("synthetic-x4", 8, "unadjusted"): 0.52,
    ("synthetic-x1", 4, "adjusted"): 0.50,
    ("synthetic-x1", 16, "adjusted"): 0.59,
    ("synthetic-x1", 8, "long"): 0.62,
}
STEPS, LONG_STEPS = 120, 240
GAIN = {"gain": 0.303, "low": 0.273, "high": 0.333, "n": 3, "line": 0.1}
TREND = {"axis": "model", "gain": 0.034, "low": -0.012, "high": 0.08, "n": 9}
SPEND = {
    "axis": "model",
    "second": "samples_per_prompt",
    "p_best": 0.61,
    "seeds": 3,
    "point": "synthetic-x8",
    "cost_s": 77.0,
}


def make_cell(
    model: str, samples: int, arm: str, seed: int, *, stopped: bool = False
) -> CellResult:
    rng = random.Random(f"{model}{samples}{arm}{seed}")
    start, end = BASE_SCORE[model], FINAL[model, samples, arm] + rng.gauss(0, 0.015)
    last = LONG_STEPS if arm == "long" else 30 if stopped else STEPS
    grid = tuple(range(0, last + 1, 10))

    def level(step: int) -> float:
        return end - (end - start) * math.exp(-step / 35)

    def series(value, noise: float):
        return tuple((step, value(step) + rng.gauss(0, noise)) for step in range(1, last + 1))

    scores = tuple(min(1.0, max(0.0, level(step) + rng.gauss(0, 0.008))) for step in grid)
    size = SIZES[model]
    return CellResult(
        cell=f"{model}-g{samples}-{arm}-s{seed}-000000000000",
        axis_values={
            "model": model,
            "samples_per_prompt": str(samples),
            "steps": "2" if arm == "long" else "1",
        },
        ratios={
            "model": size,
            "samples_per_prompt": samples / 8,
            "steps": 2.0 if arm == "long" else 1.0,
        },
        arm=arm,
        seed=seed,
        state="stopped" if stopped else "done",
        reason="validation: reward_mean fell below its first window" if stopped else "",
        base_score=scores[0],
        final_score=None if stopped else sum(scores[-3:]) / 3,
        trajectory=Trajectory(
            steps=grid, scores=scores, samples=tuple(step * 16 * samples for step in grid)
        ),
        seconds=last * (0.05 + 0.04 * size) * (0.4 + samples / 13),
        num_tokens=int(last * 16 * samples * 48),
        num_parameters=int(104_000 * size),
        run_folder=f"runs/{model}-g{samples}-{arm}-s{seed}",
        metrics={
            "reward_mean": series(lambda step: level(step) + 0.05, 0.03),
            "kl_ref": series(lambda step: 0.02 * (1 - math.exp(-step / 60)), 0.001),
            "entropy": series(lambda step: 0.9 * math.exp(-step / 200) / size**0.2, 0.02),
            "grad_norm": series(lambda step: 0.8 + 0.4 * math.exp(-step / 50), 0.08),
            "length_mean": series(lambda step: 22 - 3 * step / last, 0.4),
        },
    )


def make_cells() -> tuple[CellResult, ...]:
    """Return 22 cells: 7 points with 3 seeds and one long run; one unadjusted cell is stopped."""
    points = [key for key in FINAL if key[2] != "long"]
    cells = [
        make_cell(
            model,
            samples,
            arm,
            seed,
            stopped=(model, arm, seed) == ("synthetic-x4", "unadjusted", 3),
        )
        for model, samples, arm in points
        for seed in (1, 2, 3)
    ]
    return (*cells, make_cell("synthetic-x1", 8, "long", 1))


def make_interval(values: list[float], half: float = 0.03) -> Interval:
    mean = statistics.fmean(values)
    if len(values) < 2:  # one seed borrows the other points' spread
        return Interval(mean=mean, low=mean - 2 * half, high=mean + 2 * half, n=len(values))
    return Interval(mean=mean, low=mean - half, high=mean + half, n=len(values))


def make_point(label: str, ratio: float, cells: list[CellResult], at: int = -1) -> CurvePoint:
    done = [cell for cell in cells if cell.final_score is not None]
    scores = [
        (cell.seed, float(cell.final_score) if at < 0 else cell.trajectory.scores[at])
        for cell in done
    ]
    gains = [
        score - (cell.base_score or 0.0) for cell, (_, score) in zip(done, scores, strict=True)
    ]
    half = 0.03 if len(done) > 2 else 0.05
    share = 1.0 if at < 0 else ratio
    return CurvePoint(
        ratio=ratio,
        label=label,
        score=make_interval([score for _, score in scores], half),
        gain=make_interval(gains, half),
        seeds=tuple(scores),
        cells=tuple(cell.cell for cell in cells),
        seconds=share * statistics.fmean(cell.seconds for cell in cells),
        num_stopped=sum(cell.state == "stopped" for cell in cells),
    )


def make_curves(cells: tuple[CellResult, ...]) -> tuple[Curve, ...]:
    def of(model: str, samples: int, arm: str) -> list[CellResult]:
        wanted = (model, str(samples), arm)
        return [
            c
            for c in cells
            if (c.axis_values["model"], c.axis_values["samples_per_prompt"], c.arm) == wanted
        ]

    base = of("synthetic-x1", 8, "base")
    arms = {
        arm: tuple(
            make_point(size, ratio, base if ratio == 1 else of(size, 8, arm))
            for size, ratio in SIZES.items()
        )
        for arm in ("adjusted", "unadjusted")
    }
    samples = (
        make_point("4", 0.5, of("synthetic-x1", 4, "adjusted")),
        make_point("8", 1.0, base),
        make_point("16", 2.0, of("synthetic-x1", 16, "adjusted")),
    )
    steps = (
        make_point("0.25", 0.25, base, at=3),
        make_point("0.5", 0.5, base, at=6),
        make_point("1", 1.0, base),
        make_point("2", 2.0, of("synthetic-x1", 8, "long")),
    )
    metric = "eval/pass@1"
    return (
        Curve(axis="model", arm="adjusted", metric=metric, points=arms["adjusted"]),
        Curve(axis="model", arm="unadjusted", metric=metric, points=arms["unadjusted"]),
        Curve(axis="samples_per_prompt", arm="adjusted", metric=metric, points=samples),
        Curve(axis="steps", arm="base", metric=metric, points=steps),
    )


def make_effects() -> tuple[Effect, ...]:
    def effect(key: str, mean: float, half: float, p: float | None, holm: float | None) -> Effect:
        difference = Interval(mean=mean, low=mean - half, high=mean + half, n=3)
        return Effect(
            key=key, difference=difference, p_value=p, p_holm=holm, stated=holm is not None
        )

    return (
        effect("model:synthetic-x2-synthetic-x1:adjusted", 0.101, 0.041, 0.0021, 0.0084),
        effect("model:synthetic-x4-synthetic-x1:adjusted", 0.148, 0.041, 0.0004, 0.002),
        effect("model:synthetic-x2:adjusted-unadjusted", 0.032, 0.044, 0.11, 0.22),
        effect("model:synthetic-x4:adjusted-unadjusted", 0.187, 0.052, 0.0007, 0.0028),
        effect("samples_per_prompt:16-8", 0.031, 0.043, 0.13, None),
        effect("samples_per_prompt:8-4", 0.058, 0.043, 0.02, None),
        effect("steps:1-0.5", 0.066, 0.036, 0.008, None),
    )


def make_forecasts() -> tuple[Forecast, ...]:
    def around(mean: float, half: float) -> Interval:
        return Interval(mean=mean, low=mean - half, high=mean + half, n=3)

    return (
        Forecast(
            axis="model",
            from_label="synthetic-x4",
            to_label="synthetic-x8",
            gain=around(0.034, 0.046),
            added_cost_s=19.2,
            gain_at_equal_cost=around(0.028, 0.04),
            probability_best=0.61,
        ),
        Forecast(
            axis="samples_per_prompt",
            from_label="16",
            to_label="32",
            gain=around(0.012, 0.05),
            added_cost_s=13.7,
            gain_at_equal_cost=around(0.014, 0.057),
            probability_best=0.39,
        ),
        Forecast(
            axis="steps",
            from_label="2",
            to_label="4",
            gain=Interval(mean=0.0, low=None, high=None, n=1),
            added_cost_s=21.6,
            gain_at_equal_cost=None,
            probability_best=None,
            refused="refused_seeds",
        ),
    )


def make_findings(cells: tuple[CellResult, ...]) -> tuple[Finding, ...]:
    stopped = next(cell for cell in cells if cell.state == "stopped")
    return (
        Finding(
            detector="R1",
            outcome=Outcome.FIRED,
            severity=Severity.CRITICAL,
            onset=21,
            key="R1",
            evidence=(Evidence(metric="reward_mean", value=0.081, threshold=0.11, step=27),),
            causes=("gradient", "lr"),
            run=stopped.cell,
        ),
        Finding(
            detector="L2", outcome=Outcome.CANNOT_SAY, key="L2", needs=("truncated_share",), run="a"
        ),
        Finding(
            detector="L2", outcome=Outcome.CANNOT_SAY, key="L2", needs=("truncated_share",), run="b"
        ),
        Finding(detector="K1", outcome=Outcome.CLEAR, key="K1"),
    )


def make_settings() -> tuple[SettingChange, ...]:
    rows = (
        ("optim.lr", 1.5e-5, 2 / 3, "reports.model.lr"),
        ("kl.coef", 0.02, 0.5, "reports.model.kl"),
        ("entropy.coef", 0.01, 1.25, "reports.model.entropy"),
    )
    return tuple(
        SettingChange(
            cell_kind=f"model={size} {arm}",
            path=path,
            before=before,
            after=before * factor**doublings if arm == "adjusted" else before,
            rule=rule,
            evidence="synthetic: one practitioner report, a claim to test",
        )
        for size, doublings in (("synthetic-x2", 1), ("synthetic-x4", 2))
        for arm in ("adjusted", "unadjusted")
        for path, before, factor, rule in rows
    )


def make_verdict(answer: Answer = Answer.GO) -> Verdict:
    """Return a verdict in the words of study/reasons.py, with made-up numbers."""
    against = answer is Answer.NO_GO
    climb: dict[str, float | int | str] = {
        "axis": "model",
        "start": "synthetic-x1",
        "end": "synthetic-x4",
        "difference": -0.148 if against else 0.148,
        "low": -0.189 if against else 0.107,
        "high": -0.107 if against else 0.189,
        "n": 3,
        "margin": 0.03,
    }
    stopped = "synthetic-x4-g8-unadjusted-s3-000000000000"
    return Verdict(
        answer=answer,
        reasons=(
            Reason(key=say.GAIN_ENOUGH, values=GAIN, sign=1),
            Reason(
                key=say.SCALE_FALLS if against else say.SCALE_HOLDS,
                values=climb,
                sign=-1 if against else 1,
            ),
            Reason(key=say.TREND_OPEN, values=TREND, sign=0),
        ),
        next_spend=Reason(key=say.SPEND_UNDECIDED, values=SPEND),
        what_would_change_it=Reason(
            key=say.CHANGE_SCALE_HIGH if against else say.CHANGE_SCALE_LOW,
            values={**climb, "line": -0.03},
        ),
        confidence=Reason(
            key=say.CONFIDENCE_MODERATE, values={"seeds": 3, "points": 3, "axis": "model"}
        ),
        caveats=(
            Reason(
                key="caveat_stopped",
                values={"cell": stopped, "state": "stopped", "reason": "synthetic"},
            ),
            Reason(key="caveat_long_one_seed", values={"point": 2}),
        ),
    )


def make_unknown_verdict() -> Verdict:
    """Return a verdict whose keys no catalogue holds: the report must show key and values."""
    unknown = Reason(key="synthetic_key", values={"gain": 0.381, "n": 3})
    return Verdict(
        answer=Answer.NOT_ENOUGH,
        reasons=(unknown,),
        next_spend=unknown,
        what_would_change_it=unknown,
        confidence=Reason(key=say.GAIN_ENOUGH, values={"gain": 0.5}),
    )


def make_study_result(answer: Answer = Answer.GO, verdict: Verdict | None = None) -> StudyResult:
    """Return the whole synthetic study."""
    cells = make_cells()
    return StudyResult(
        study="synthetic-ladder",
        plan_id="synthetic0001",
        created="2001-01-01T00:00:00Z",
        metric="eval/pass@1",
        cells=cells,
        curves=make_curves(cells),
        effects=make_effects(),
        fits=(
            Fit(
                family="power law",
                axis="model",
                parameters={"a": 0.31, "b": 0.42},
                leave_last_out_error=0.021,
                num_points=3,
            ),
        ),
        forecasts=make_forecasts(),
        findings=make_findings(cells),
        settings=make_settings(),
        verdict=verdict or make_verdict(answer),
        facts={
            "stepladder": "0.0.0-synthetic",
            "cores": 2,
            "wall_s": 301.5,
            "target_axis": "model",
        },
    )


def make_empty_result() -> StudyResult:
    """Return a study of which nothing has run."""
    return StudyResult(
        study="synthetic-empty",
        plan_id="synthetic0000",
        created="2001-01-01T00:00:00Z",
        metric="eval/pass@1",
        cells=(),
        curves=(),
        effects=(),
        fits=(),
        forecasts=(),
        findings=(),
        settings=(),
        verdict=make_verdict(Answer.NOT_ENOUGH),
    )
