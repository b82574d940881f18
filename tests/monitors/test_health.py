"""Detectors keep their false-alarm budget and find the faults that they are for."""

import numpy as np
import pytest

from stepladder.core.finding import Outcome, Severity
from stepladder.core.record import RunRecord
from stepladder.monitors.health import DETECTORS, check_run
from stepladder.testing import simulate
from stepladder.testing.monitors import check_monitor
from stepladder.testing.simulate import Simulation, healthy

FAULTS = {
    "collapse": "R1",
    "kl_runaway": "K1",
    "entropy_cliff": "E1",
    "gradient_explosion": "G1",
    "non_finite": "G1",
    "truncation": "L2",
}
BATCHES = {"batch 8": (2, 4), "batch 256": (32, 8)}


def alarms(record):
    return [
        f
        for f in check_run(record)
        if f.outcome is Outcome.FIRED and f.severity >= Severity.WARNING
    ]


def by_id(record):
    return {finding.detector: finding for finding in check_run(record)}


def record_of(**columns):
    num = len(next(iter(columns.values())))
    metrics = {
        name.replace("outcome", "term_mean/outcome"): np.asarray(values, float)
        for name, values in columns.items()
    }
    return RunRecord(
        run="r", settings={}, steps=np.arange(1, num + 1), metrics=metrics, evals=(), status="done"
    )


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("entropy", [0.15, 0.9])
def test_at_most_one_healthy_run_in_twenty_is_warned_of(batch, entropy):
    prompts, group = BATCHES[batch]
    warned = [
        seed
        for seed in range(200)
        if alarms(healthy(Simulation(seed=seed, num_prompts=prompts, group=group, entropy=entropy)))
    ]
    assert len(warned) <= 10, warned


@pytest.mark.parametrize("num_steps", [30, 60, 100])
def test_short_healthy_runs_keep_the_budget(num_steps):
    warned = [
        seed for seed in range(60) if alarms(healthy(Simulation(seed=seed, num_steps=num_steps)))
    ]
    assert len(warned) <= 3, warned


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_the_diagnosis_in_nineteen_runs_of_twenty(fault):
    found, delays = 0, []
    for seed in range(60):
        onset = 100 + seed % 40
        fired = alarms(getattr(simulate, fault)(Simulation(seed=seed, num_prompts=32), onset))
        root = [f for f in fired if f.detector == FAULTS[fault] and f.explained_by is None]
        found += bool(root)
        delays.extend(f.onset - onset for f in root)
    assert found >= 57
    assert -5 <= np.median(delays) <= 20


def test_every_detector_meets_the_seam():
    for detector in DETECTORS:
        check_monitor(detector)


def test_missing_metrics_are_named_not_guessed():
    findings = by_id(record_of(reward_mean=np.linspace(0.2, 0.8, 50)))
    assert findings["K1"].outcome is Outcome.CANNOT_SAY
    assert findings["K1"].needs == ("kl_ref",)
    assert findings["R1"].outcome is Outcome.CLEAR


def test_too_few_points_are_told_with_both_numbers():
    finding = by_id(record_of(outcome=[0.5] * 7))["R1"]
    assert finding.outcome is Outcome.CANNOT_SAY
    assert finding.values == {"num_points": 7, "min_points": 20}


def test_a_high_first_kl_is_a_mismatch_at_once():
    finding = by_id(record_of(kl_ref=[0.4]))["K1"]
    assert (finding.severity, finding.causes) == (Severity.CRITICAL, ("mismatch",))


def test_kl_that_grows_from_zero_is_ordinary():
    steps = np.arange(200)
    assert by_id(record_of(kl_ref=0.001 * steps))["K1"].outcome is Outcome.CLEAR


def test_single_kl_spikes_are_ignored():
    values = np.full(100, 0.02)
    values[[30, 60, 90]] = 5.0
    assert by_id(record_of(kl_ref=values))["K1"].outcome is Outcome.CLEAR


def test_an_advantage_beyond_fifty_fires_at_once():
    finding = by_id(record_of(grad_norm=[1.0, 1.0], advantage_max=[2.0, 1e4]))["G1"]
    assert (finding.severity, finding.onset) == (Severity.CRITICAL, 2)


def test_a_solved_task_is_a_note_not_a_fault():
    finding = by_id(record_of(outcome=[0.98] * 40, zero_variance_share=[0.9] * 40))["Z1"]
    assert (finding.severity, finding.values["side"]) == (Severity.NOTE, "easy")


def test_a_hopeless_task_is_a_warning():
    finding = by_id(record_of(outcome=[0.01] * 40, zero_variance_share=[0.9] * 40))["Z1"]
    assert (finding.severity, finding.values["side"]) == (Severity.WARNING, "hard")


@pytest.mark.parametrize(
    ("share", "severity"),
    [(0.06, Severity.NOTE), (0.2, Severity.WARNING), (0.6, Severity.CRITICAL)],
)
def test_truncation_levels(share, severity):
    assert by_id(record_of(truncated_share=[share] * 20))["L2"].severity is severity


def test_truncation_that_training_ended_is_no_alarm():
    values = np.concatenate([np.linspace(0.95, 0.0, 20), np.zeros(30)])
    assert by_id(record_of(truncated_share=values))["L2"].outcome is Outcome.CLEAR


def test_a_run_of_one_step_is_spoken_of_without_error():
    assert len(check_run(simulate.first(healthy(Simulation(seed=1)), 1))) == len(DETECTORS)


def test_downstream_findings_point_at_their_cause():
    findings = by_id(simulate.truncation(Simulation(seed=3, num_prompts=32), 100))
    assert findings["R1"].explained_by == "L2"


def stuck(num_stuck, at=20, num=60, skipped=2.0):
    updates, left_out = np.full(num, 2.0), np.zeros(num)
    updates[at : at + num_stuck], left_out[at : at + num_stuck] = 0.0, skipped
    return by_id(record_of(updates=updates, skipped_updates=left_out))["U1"]


@pytest.mark.parametrize(
    ("num_stuck", "severity"),
    [(3, Severity.WARNING), (4, Severity.WARNING), (5, Severity.CRITICAL)],
)
def test_steps_in_a_row_without_an_update_are_told(num_stuck, severity):
    finding = stuck(num_stuck)
    assert (finding.outcome, finding.severity, finding.onset) == (Outcome.FIRED, severity, 21)
    assert finding.values == {"steps": num_stuck, "num_skipped": 2 * num_stuck}


def test_a_skipped_update_now_and_then_or_none_at_all_is_no_finding():
    assert stuck(2).outcome is Outcome.CLEAR
    # Nothing was left out: the critic's warm-up has no update of the policy.
    assert stuck(20, skipped=0.0).outcome is Outcome.CLEAR
    alternating = np.tile([0.0, 2.0], 20)
    found = by_id(record_of(updates=alternating, skipped_updates=2.0 - alternating))["U1"]
    assert found.outcome is Outcome.CLEAR
    assert by_id(record_of(grad_norm=np.ones(30)))["U1"].outcome is Outcome.CANNOT_SAY
