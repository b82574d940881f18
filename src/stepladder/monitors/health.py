"""Health of one run after (or during) training: the detectors of the spine, and one chain of causes.

Every threshold is detectors.md D1's; its evidence stands there. More detectors come with the
monitors issue; `check_run` is what studies and live monitors call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from stepladder.core.finding import Evidence, Finding, Outcome, Severity
from stepladder.core.record import RunRecord
from stepladder.monitors.base import Detector, Series, clear, fired, first_series, series
from stepladder.monitors.noise import (
    MIN_WINDOW,
    adaptive_window,
    change_point,
    drop_after,
    early_median,
    expanding_median,
    find_fall,
    first_run,
    noise_sigma,
    persistence,
    rolling_median,
)

OUTCOME, REWARD = "term_mean/outcome", "reward_mean"
KL, ENTROPY, GRADIENT = "kl_ref", "entropy", "grad_norm"
UPDATES, SKIPPED = "updates", "skipped_updates"
ADVANTAGE, TRUNCATED, ZERO_VARIANCE = "advantage_max", "truncated_share", "zero_variance_share"

COLLAPSE_SHARE, COLLAPSE_WARNING, COLLAPSE_CRITICAL = 0.33, 6.0, 8.0
KL_RATIO, KL_TYPICAL, KL_FLOOR, KL_FIRST = 8.0, 5.0, 0.1, 0.1
"""KL_FLOOR: a KL that starts at exactly 0 grows without bound in ratio; below it nothing is lost."""
ENTROPY_SHARE, CLIFF_SHARE, CLIFF_WIDTH = 0.10, 0.5, 0.05
GRADIENT_RATIO, ADVANTAGE_LIMIT, REWARD_DROP = 10.0, 50.0, 4.0
TRUNCATION_LEVELS = ((0.50, Severity.CRITICAL), (0.15, Severity.WARNING), (0.05, Severity.NOTE))
ZERO_LEVELS = ((0.95, Severity.CRITICAL), (0.75, Severity.WARNING), (0.50, Severity.NOTE))
TRUNCATION_AT_ONCE = 0.90
SOLVED = 0.85
"""From this mean outcome on, low entropy and groups without variance are success, not a fault."""
MEDIAN_WINDOW = 9
STUCK_LEVELS = ((5, Severity.CRITICAL), (3, Severity.WARNING))
"""Steps in a row without an applied update; at the first one a run stops by default."""


def check_run(record: RunRecord) -> list[Finding]:
    """Return one finding a detector, in the order R1, K1, E1, G1, U1, L2, Z1, causes linked."""
    return link_causes([replace(d.check(record), run=record.run) for d in DETECTORS])


def link_causes(findings: list[Finding]) -> list[Finding]:
    """Name, on every warning, the upstream finding that began no later and explains it."""
    by_id = {f.detector: f for f in findings if f.outcome is Outcome.FIRED}
    linked: list[Finding] = []
    for finding in findings:
        upstream = [by_id[name] for name in UPSTREAM.get(finding.detector, ()) if name in by_id]
        found = next((up for up in upstream if _explains(up, finding)), None)
        linked.append(replace(finding, explained_by=found.detector) if found else finding)
    return linked


def _explains(upstream: Finding, finding: Finding) -> bool:
    if finding.outcome is not Outcome.FIRED or upstream.severity < Severity.WARNING:
        return False
    # Onsets are known to about a window.
    return (upstream.onset or 0) <= (finding.onset or 0) + MIN_WINDOW


def _reward(record: RunRecord) -> Series:
    """Return the task's own component when it is logged, else the total reward."""
    return first_series(record, OUTCOME, REWARD)


def _collapse(record: RunRecord) -> Finding:
    reward = _reward(record)
    fall = find_fall(reward.values, COLLAPSE_SHARE, COLLAPSE_WARNING)
    if fall is None or fall.best < 0.05 * float(np.max(np.abs(reward.values))):
        return clear("R1")
    severity = Severity.CRITICAL if fall.score > COLLAPSE_CRITICAL else Severity.WARNING
    onset = reward.step(fall.index)
    return fired(
        "R1",
        severity,
        onset,
        (
            Evidence(
                metric=reward.name,
                value=fall.low,
                threshold=COLLAPSE_SHARE * fall.best,
                step=onset,
            ),
        ),
        causes=("mismatch", "gradient", "truncation", "kl_coef", "reward_changed", "lr"),
        values={"best": fall.best, "low": fall.low, "z": fall.score},
    )


def _kl_runaway(record: RunRecord) -> Finding:
    kl = series(record, KL)
    if kl.step(0) <= 1 and kl.values[0] > KL_FIRST:
        # Before the first update policy and reference are the same weights.
        evidence = Evidence(metric=KL, value=float(kl.values[0]), threshold=KL_FIRST, step=1)
        return fired("K1", Severity.CRITICAL, kl.step(0), (evidence,), causes=("mismatch",))
    if len(kl) < 20:
        return clear("K1")
    medians = rolling_median(kl.values, MEDIAN_WINDOW)
    early = early_median(kl.values)
    typical = expanding_median(kl.values)[MEDIAN_WINDOW - 1 :]
    limit = np.maximum(np.maximum(KL_RATIO * early, KL_TYPICAL * typical), KL_FLOOR)
    rising = np.concatenate([[False], np.diff(medians) >= 0])
    at = first_run((medians > limit) & rising, 3)
    if at is None:
        return clear("K1", Evidence(metric=KL, value=float(medians[-1])))
    onset = kl.step(at + MEDIAN_WINDOW // 2)
    return fired(
        "K1",
        Severity.WARNING,
        onset,
        (
            Evidence(
                metric=KL, value=float(np.max(medians)), threshold=float(limit[at]), step=onset
            ),
        ),
        causes=("kl_coef", "lr", "reward_changed", "mismatch"),
        values={"early": early, "largest": float(np.max(medians))},
    )


def _entropy_low(record: RunRecord) -> Finding:
    entropy = series(record, ENTROPY)
    early = early_median(entropy.values)
    medians = rolling_median(entropy.values, MIN_WINDOW)
    low_at = first_run(medians < ENTROPY_SHARE * early, persistence(MIN_WINDOW))
    index = low_at if low_at is not None else _cliff(entropy)
    if index is None or early <= 0:
        return clear("E1", Evidence(metric=ENTROPY, value=float(medians[-1])))
    zero = series(record, ZERO_VARIANCE)
    no_signal = len(zero) > 0 and float(np.median(zero.values[-MIN_WINDOW:])) > 0.5
    onset = entropy.step(index)
    idle = not _is_solved(record) and (no_signal or _is_stuck(_reward(record), onset))
    lowest = float(np.min(medians))
    return fired(
        "E1",
        Severity.WARNING if idle else Severity.NOTE,
        onset,
        (Evidence(metric=ENTROPY, value=lowest, threshold=ENTROPY_SHARE * early, step=onset),),
        causes=("lr", "too_hard") if idle else ("saturated",),
        values={"early": early, "lowest": lowest},
    )


def _cliff(entropy: Series) -> int | None:
    """Return where more than half of the entropy goes within 5 % of the run, for good."""
    index = change_point(entropy.values)
    width = max(2, round(CLIFF_WIDTH * len(entropy)))
    before = entropy.values[max(0, index - width - MIN_WINDOW) : max(1, index - width)]
    after = entropy.values[index + width : index + width + MIN_WINDOW]
    if len(before) < MIN_WINDOW or len(after) < MIN_WINDOW:
        return None
    return index if np.median(after) < CLIFF_SHARE * np.median(before) else None


def _is_stuck(reward: Series, onset: int) -> bool:
    """Return whether the reward after `onset` rose by less than two standard errors."""
    after = reward.values[reward.steps >= onset]
    half = len(after) // 2
    if half < MIN_WINDOW:
        return False
    rise = float(np.mean(after[half:]) - np.mean(after[:half]))
    return rise < 2.0 * noise_sigma(reward.values) * np.sqrt(2.0 / half)


def _is_solved(record: RunRecord) -> bool:
    reward = _reward(record)
    return len(reward) > 0 and float(np.mean(reward.values[-MIN_WINDOW:])) >= SOLVED


def _gradient(record: RunRecord) -> Finding:
    bad = [(steps[0], name) for name, steps in record.non_finite.items() if steps]
    if bad:  # at the first row: there may be no precursor (case 26)
        step, name = min(bad)
        evidence = Evidence(metric=name, value=float(len(record.non_finite[name])), step=step)
        return fired(
            "G1",
            Severity.CRITICAL,
            step,
            (evidence,),
            causes=("lr",),
            values={"metric": name, "num_non_finite": len(record.non_finite[name])},
        )
    advantage = series(record, ADVANTAGE)
    large = np.flatnonzero(np.abs(advantage.values) > ADVANTAGE_LIMIT)
    if len(large):
        at = int(large[0])
        evidence = Evidence(
            metric=ADVANTAGE,
            value=float(advantage.values[at]),
            threshold=ADVANTAGE_LIMIT,
            step=advantage.step(at),
        )
        return fired("G1", Severity.CRITICAL, advantage.step(at), (evidence,))
    return _explosion(series(record, GRADIENT), _reward(record))


def _explosion(norm: Series, reward: Series) -> Finding:
    """Judge the size of the gradient: a lasting rise, a spike that cost reward, or a mere spike."""
    if len(norm) < 2 * MEDIAN_WINDOW:
        return clear("G1")
    medians = rolling_median(norm.values, MEDIAN_WINDOW)
    ends = np.arange(MEDIAN_WINDOW, len(norm) + 1)
    usual = expanding_median(norm.values)[np.maximum(MIN_WINDOW, ends - MEDIAN_WINDOW) - 1]
    at = first_run(medians > GRADIENT_RATIO * usual, 3)
    if at is not None:
        index, severity = at + MEDIAN_WINDOW // 2, Severity.WARNING
        threshold = GRADIENT_RATIO * float(usual[at])
    else:
        middle = float(np.median(norm.values))
        index = int(np.argmax(norm.values))
        threshold = GRADIENT_RATIO * middle
        # The very first steps of a run are often its largest.
        if norm.values[index] <= threshold or index < MIN_WINDOW:
            return clear("G1")
        severity = Severity.NOTE
    onset = norm.step(index)
    drop = drop_after(reward.values, int(np.searchsorted(reward.steps, onset)))
    if drop > REWARD_DROP:
        severity = Severity(severity + 1)
    evidence = Evidence(
        metric=norm.name, value=float(norm.values[index]), threshold=threshold, step=onset
    )
    return fired("G1", severity, onset, (evidence,), causes=("lr",), values={"reward_drop_z": drop})


def _skipped(record: RunRecord) -> Finding:
    """Judge the longest row of steps in which every update was left out."""
    applied, skipped = series(record, UPDATES), series(record, SKIPPED)
    lost = set(skipped.steps[skipped.values > 0].tolist())
    # Without a skipped update, a step without one is the run's own doing (critic warm-up).
    stuck = [
        value == 0 and step in lost
        for step, value in zip(applied.steps.tolist(), applied.values.tolist(), strict=True)
    ]
    longest, end, count = 0, 0, 0
    for index, is_stuck in enumerate(stuck):
        count = count + 1 if is_stuck else 0
        if count > longest:
            longest, end = count, index
    severity = next((level for least, level in STUCK_LEVELS if longest >= least), None)
    if severity is None:
        return clear("U1", Evidence(metric=UPDATES, value=float(longest)))
    onset = applied.step(end - longest + 1)
    evidence = Evidence(
        metric=UPDATES, value=float(longest), threshold=float(STUCK_LEVELS[-1][0]), step=onset
    )
    total = int(skipped.values.sum())
    return fired(
        "U1",
        severity,
        onset,
        (evidence,),
        causes=("lr",),
        values={"steps": longest, "num_skipped": total},
    )


def _truncation(record: RunRecord) -> Finding:
    share = series(record, TRUNCATED)
    last = float(np.mean(share.values[-_tail(share) :]))
    first = float(share.values[0])
    if share.step(0) <= 1 and first >= TRUNCATION_AT_ONCE and last >= TRUNCATION_LEVELS[1][0]:
        evidence = Evidence(
            metric=TRUNCATED, value=first, threshold=TRUNCATION_AT_ONCE, step=share.step(0)
        )
        return fired("L2", Severity.CRITICAL, share.step(0), (evidence,), causes=("truncation",))
    return _level("L2", share, last, TRUNCATION_LEVELS, ("truncation",), {})


def _zero_variance(record: RunRecord) -> Finding:
    share = series(record, ZERO_VARIANCE)
    last = float(np.median(share.values[-_tail(share) :]))
    solved = _is_solved(record)
    if len(share) < 10 and last < 1.0:
        return clear("Z1", Evidence(metric=ZERO_VARIANCE, value=last))
    found = _level(
        "Z1",
        share,
        last,
        ZERO_LEVELS,
        ("too_easy",) if solved else ("truncation", "too_hard"),
        {"side": "easy" if solved else "hard"},
    )
    # A solved task has nothing more to teach: true, and no fault of the run.
    return replace(found, severity=Severity.NOTE) if solved else found


def _tail(share: Series) -> int:
    return min(len(share), adaptive_window(share.values))


def _level(
    detector: str,
    share: Series,
    last: float,
    levels: tuple[tuple[float, Severity], ...],
    causes: tuple[str, ...],
    values: Mapping[str, float | int | str],
) -> Finding:
    """Judge the level at which a share has arrived; onset is where it last came above it."""
    found = next(((at, severity) for at, severity in levels if last >= at), None)
    if found is None:
        return clear(detector, Evidence(metric=share.name, value=last, threshold=levels[-1][0]))
    threshold, severity = found
    smooth = rolling_median(share.values, min(MIN_WINDOW, len(share)))
    below = np.flatnonzero(smooth < threshold)
    onset = share.step(min(len(share) - 1, int(below[-1]) + 1 if len(below) else 0))
    evidence = Evidence(metric=share.name, value=last, threshold=threshold, step=onset)
    return fired(detector, severity, onset, (evidence,), causes=causes, values=values)


UPSTREAM: Mapping[str, tuple[str, ...]] = {
    "R1": ("L2", "G1", "K1"),
    "Z1": ("L2", "R1"),
    "K1": ("G1",),
    "E1": ("G1", "K1"),
    "U1": ("G1", "K1"),
}
"""The causal graph among these detectors, upstream first (detectors.md D0)."""

DETECTORS: tuple[Detector, ...] = (
    Detector("R1", (OUTCOME, REWARD), 20, _collapse, any_of=True),
    Detector("K1", (KL,), 1, _kl_runaway),
    Detector("E1", (ENTROPY,), 20, _entropy_low),
    Detector("G1", (GRADIENT,), 1, _gradient, reads_non_finite=True),
    Detector("U1", (UPDATES,), 1, _skipped),
    Detector("L2", (TRUNCATED,), 1, _truncation),
    Detector("Z1", (ZERO_VARIANCE,), 1, _zero_variance),
)
