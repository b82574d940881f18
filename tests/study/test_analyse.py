from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from study.decision_cases import CONTRASTS, make_cell, make_cells, make_critical, make_plan

from stepladder.core.result import CurvePoint, Effect, StudyResult
from stepladder.study.analyse import analyse, effects_of
from stepladder.study.evidence import Evidence, study_points


def point(result: StudyResult, axis: str, label: str, arm: str | None = None) -> CurvePoint:
    curves = [c for c in result.curves if c.axis == axis and arm in (None, c.arm)]
    return next(p for c in curves for p in c.points if p.label == label)


def effect(result: StudyResult, key: str) -> Effect:
    return next(e for e in result.effects if e.key == key)


def test_points_stand_on_every_axis_with_the_base_point_once_a_curve():
    result = analyse(make_plan(), make_cells(), [])
    labels = {(c.axis, c.arm): [p.label for p in c.points] for c in result.curves}
    assert labels == {
        ("model", "adjusted"): ["ladder-x1", "ladder-x2", "ladder-x4"],
        ("model", "unadjusted"): ["ladder-x1", "ladder-x2", "ladder-x4"],
        ("samples_per_prompt", "adjusted"): ["4", "8", "16"],
        ("steps", "base"): ["0.25", "0.5", "1", "2"],
    }
    scores = [
        point(result, "model", "ladder-x1").score,
        point(result, "samples_per_prompt", "8").score,
        point(result, "steps", "1").score,
    ]
    assert scores[0] == scores[1] == scores[2]
    assert scores[0].mean == pytest.approx(0.60)
    assert scores[0].n == 3


def test_gain_is_paired_with_the_same_runs_base_score():
    cells = [make_cell(s, 0.5 + 0.1 * s, base_score=0.1 * s) for s in (1, 2, 3)]
    gain = point(analyse(make_plan(), cells, []), "steps", "1").gain
    assert gain.mean == pytest.approx(0.5)
    assert gain.low is not None
    assert gain.low > 0.49


def test_gain_without_a_base_score_says_so():
    cells = [make_cell(s, 0.6, base_score=None) for s in (1, 2, 3)]
    gain = point(analyse(make_plan(), cells, []), "steps", "1").gain
    assert (gain.n, gain.low, gain.high, gain.method) == (0, None, None, "not measured")


def test_shares_are_read_between_evaluations():
    cells = make_cells()
    quarter = point(analyse(make_plan(), cells, []), "steps", "0.25")
    runs = [c for c in cells if c.arm == "base"]
    wanted = [t.scores[1] + (t.scores[2] - t.scores[1]) / 4 for t in (c.trajectory for c in runs)]
    assert [score for _, score in quarter.seeds] == pytest.approx(wanted)
    assert quarter.seconds == pytest.approx(2.5)


def test_holm_runs_over_stated_contrasts_only():
    result = analyse(make_plan(), make_cells(), [])
    stated = [e for e in result.effects if e.stated]
    assert {e.key for e in stated} == set(CONTRASTS)
    assert all(e.p_holm is not None and e.p_value is not None for e in stated)
    assert all((e.p_holm or 0) >= (e.p_value or 0) for e in stated)
    exploratory = effect(result, "model:ladder-x4-ladder-x1:adjusted")
    assert (exploratory.stated, exploratory.p_holm) == (False, None)
    assert exploratory.difference.mean == pytest.approx(0.12, abs=0.01)


def test_downward_contrast_is_measured_when_stated():
    plan = make_plan(contrasts=["samples_per_prompt:4-8"])
    found = effect(analyse(plan, make_cells(), []), "samples_per_prompt:4-8")
    assert found.stated
    assert found.difference.mean == pytest.approx(-0.04, abs=0.01)


def test_stated_contrast_without_data_counts_in_the_family_and_is_named():
    plan = make_plan(contrasts=["model:ladder-x2-ladder-x1:adjusted", "steps:9-8"])
    result = analyse(plan, make_cells(), [])
    found = effect(result, "model:ladder-x2-ladder-x1:adjusted")
    assert found.p_value is not None
    assert found.p_holm == pytest.approx(2 * found.p_value)
    assert ("caveat_contrast", "steps:9-8") in [
        (c.key, c.values.get("contrast")) for c in result.verdict.caveats
    ]


def test_unadjusted_collapse_does_not_widen_the_recommended_points():
    calm = analyse(make_plan(), make_cells(), [])
    cells = [
        replace(c, final_score=0.05 + 0.3 * c.seed) if c.arm == "unadjusted" else c
        for c in make_cells()
    ]
    wild = analyse(make_plan(), cells, [])
    label = "ladder-x4"
    assert (
        point(calm, "model", label, "adjusted").score
        == point(wild, "model", label, "adjusted").score
    )


def test_stopped_cell_keeps_its_score_and_is_counted():
    cells = [
        replace(c, state="stopped", reason="validation failed", final_score=0.2)
        if c.cell == "ladder-x2-g8-t1-adjusted-s1"
        else c
        for c in make_cells()
    ]
    found = point(analyse(make_plan(), cells, []), "model", "ladder-x2", "adjusted")
    assert found.num_stopped == 1
    assert dict(found.seeds)[1] == 0.2


def test_failed_cell_without_a_score_stays_in_the_result():
    cells = make_cells()
    cells[0] = make_cell(1, None, state="failed", reason="killed")
    result = analyse(make_plan(), cells, [])
    assert len(result.cells) == len(cells)
    base = point(result, "steps", "1")
    assert (base.score.n, base.num_stopped) == (2, 1)
    assert cells[0].cell in base.cells


def test_lone_seed_of_a_pending_point_has_no_interval():
    cells = make_cells()
    cells = [
        replace(c, state="pending", final_score=None)
        if c.axis_values["model"] == "ladder-x4" and c.arm == "adjusted" and c.seed > 1
        else c
        for c in cells
    ]
    result = analyse(make_plan(), cells, [])
    found = point(result, "model", "ladder-x4", "adjusted").score
    assert (found.n, found.low, found.high) == (1, None, None)
    assert effect(result, "model:ladder-x4-ladder-x2:adjusted").difference.low is None


def test_one_seed_long_run_borrows_the_pooled_spread():
    found = point(analyse(make_plan(), make_cells(), []), "steps", "2").score
    assert found.n == 1
    assert found.low is not None
    assert found.method.startswith("one seed")


def test_trimmed_steps_are_read_from_the_cells_of_the_plan():
    # Without cells in the plan the spec's own number of steps is taken.
    result = analyse(make_plan(), make_cells(), [])
    half = point(result, "steps", "0.5").score.mean
    assert 0.3 < half < 0.6


def test_nothing_measured_gives_a_result_all_the_same():
    result = analyse(make_plan(), [make_cell(1, None, state="pending")], [])
    assert result.curves == ()
    assert result.verdict.answer.value == "NOT ENOUGH EVIDENCE"
    assert len(result.verdict.reasons) == 3


def test_empty_study_gives_a_result():
    assert len(analyse(make_plan(), [], []).verdict.reasons) == 3


@settings(max_examples=15, deadline=None)
@given(st.randoms(use_true_random=False))
def test_order_of_cells_and_findings_changes_nothing(shuffler: random.Random):
    cells = make_cells()
    findings = [make_critical(cells[4]), make_critical(cells[1], "R1"), make_critical(cells[4])]
    expected = analyse(make_plan(), cells, findings)
    shuffler.shuffle(cells)
    shuffler.shuffle(findings)
    assert analyse(make_plan(), cells, findings) == expected


@settings(max_examples=15, deadline=None)
@given(st.floats(-0.2, 0.2))
def test_shifting_all_scores_shifts_means_and_leaves_differences(shift: float):
    cells = make_cells()
    moved = [
        replace(
            c,
            final_score=(c.final_score or 0) + shift,
            base_score=(c.base_score or 0) + shift,
            trajectory=replace(c.trajectory, scores=tuple(s + shift for s in c.trajectory.scores)),
        )
        for c in cells
    ]
    before, after = analyse(make_plan(), cells, []), analyse(make_plan(), moved, [])
    for old, new in zip(before.curves, after.curves, strict=True):
        for a, b in zip(old.points, new.points, strict=True):
            assert b.score.mean == pytest.approx(a.score.mean + shift)
            assert b.gain.mean == pytest.approx(a.gain.mean)
            assert (b.score.high or 0) - (b.score.low or 0) == pytest.approx(
                (a.score.high or 0) - (a.score.low or 0)
            )
    for old, new in zip(before.effects, after.effects, strict=True):
        assert new.difference.mean == pytest.approx(old.difference.mean)


def test_null_studies_seldom_call_the_stated_contrast_significant():
    generator = np.random.default_rng(11)
    plan = make_plan(contrasts=["model:ladder-x2-ladder-x1:adjusted"])
    places = [{}, {"arm": "adjusted", "model": "ladder-x2"}]
    places.append({"arm": "adjusted", "model": "ladder-x4"})
    by_p = by_interval = 0
    for _ in range(500):
        cells = [
            make_cell(seed, 0.5 + 0.03 * float(generator.standard_normal()), **place)
            for place in places
            for seed in (1, 2, 3)
        ]
        points = study_points(plan, cells)
        evidence = Evidence(plan=plan, cells=tuple(cells), findings=(), points=points)
        found = effects_of(evidence)[0]
        assert found.stated
        by_p += (found.p_holm or 1.0) < 0.05
        low, high = found.difference.low, found.difference.high
        assert low is not None
        assert high is not None
        by_interval += not low <= 0 <= high
    assert by_p <= 35
    assert by_interval <= 35


def test_facts_tell_budget_cells_and_seconds():
    facts = analyse(make_plan(), make_cells(), []).facts
    assert facts["budget_s"] == 300.0
    assert facts["num_cells"] == facts["num_finished"] == 22
    assert facts["host"] == "test"
