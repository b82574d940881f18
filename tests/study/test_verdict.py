from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from study.decision_cases import make_cells, make_critical, make_plan

from stepladder.core.finding import Finding, Outcome, Severity
from stepladder.core.result import Answer, CellResult, Reason, Verdict
from stepladder.study.analyse import analyse
from stepladder.study.reasons import TEXTS, VALUES, names_of, sentence


def verdict_of(
    cells: list[CellResult], findings: list[Finding] | None = None, **plan: Any
) -> Verdict:
    found = analyse(make_plan(**plan), cells, findings or []).verdict
    for reason in all_reasons(found):
        assert VALUES[reason.key] <= set(reason.values), reason.key
        for lang in ("en", "zh"):
            assert sentence(reason, lang)
    assert len(found.reasons) == 3
    return found


def all_reasons(found: Verdict) -> list[Reason]:
    own = [*found.reasons, found.next_spend, found.what_would_change_it, found.confidence]
    return [*own, *found.caveats]


def keys(reasons: tuple[Reason, ...]) -> list[str]:
    return [reason.key for reason in reasons]


def swap(cells: list[CellResult], name: str, **changes: Any) -> list[CellResult]:
    assert any(c.cell == name for c in cells)
    return [replace(c, **changes) if c.cell == name else c for c in cells]


def test_clear_go():
    found = verdict_of(make_cells())
    assert found.answer is Answer.GO
    assert keys(found.reasons) == ["gain_enough", "scale_holds", "health_clean"]
    assert all(reason.sign == 1 for reason in found.reasons)
    gain = found.reasons[0].values
    assert gain["n"] == 3
    assert float(gain["low"]) < float(gain["gain"]) < float(gain["high"])
    assert found.confidence.key == "confidence_moderate"
    assert set(keys(found.caveats)) == {"caveat_long_one_seed", "caveat_mistuned_control"}


def test_five_calm_seeds_give_high_confidence():
    assert verdict_of(make_cells(seeds=5)).confidence.key == "confidence_high"


def test_a_dip_between_two_sizes_leaves_the_trend_open():
    found = verdict_of(make_cells(x2=0.3, x2u=0.3))
    assert found.answer is Answer.NOT_ENOUGH
    assert found.reasons[0].key == "scale_dips"
    assert found.reasons[0].values["end"] == "ladder-x2"
    assert found.next_spend.key == "decide_dip"


def test_fall_of_the_largest_size_is_no_go():
    found = verdict_of(make_cells(x4=0.2, x4u=0.1))
    assert found.answer is Answer.NO_GO
    first = found.reasons[0]
    assert (first.key, first.sign) == ("scale_falls", -1)
    assert first.values["difference"] == pytest.approx(-0.4, abs=0.01)
    assert found.next_spend.key == "spend_change_recipe"
    assert found.what_would_change_it.key == "change_scale_high"
    assert "caveat_lower_unknown" in keys(found.caveats) or "caveat_lower_rising" in keys(
        found.caveats
    )


def test_half_of_a_points_runs_broken_is_no_go():
    cells = make_cells()
    ill = [c for c in cells if c.arm == "adjusted" and c.axis_values["model"] == "ladder-x4"]
    found = verdict_of(cells, [make_critical(c) for c in ill[:2]])
    assert found.answer is Answer.NO_GO
    assert found.reasons[0].key == "health_broken"
    assert found.reasons[0].values["detectors"] == "K1"
    assert found.next_spend.key == "spend_repair"


def test_gain_below_the_line_is_no_go():
    flat = dict.fromkeys(("base", "x2", "x4", "x2u", "x4u", "g4", "g16", "long"), 0.31)
    found = verdict_of(make_cells(**flat))
    assert found.answer is Answer.NO_GO
    assert "gain_too_small" in keys(found.reasons)


def test_noise_is_not_enough_and_names_the_seeds():
    found = verdict_of(make_cells(noise=8, x4=0.60, x2=0.6))
    assert found.answer is Answer.NOT_ENOUGH
    assert found.next_spend.key == "decide_seeds"
    assert int(found.next_spend.values["seeds"]) >= 1
    assert found.what_would_change_it.key == "change_deciding"
    assert found.confidence.key == "confidence_low_open"


def test_one_seed_that_did_not_learn_keeps_it_open():
    cells = swap(make_cells(), "ladder-x1-g8-t1-base-s2", final_score=0.29)
    found = verdict_of(cells, target={"min_gain": 0.0})
    assert found.answer is Answer.NOT_ENOUGH
    assert "gain_uneven" in keys(found.reasons)


def test_control_that_falls_is_size_and_mistuning():
    found = verdict_of(make_cells(x4u=0.4))
    assert found.answer is Answer.GO
    caveat = next(c for c in found.caveats if c.values.get("point") == "ladder-x4")
    assert caveat.key == "caveat_mistuned_control"
    assert caveat.values["difference"] == pytest.approx(-0.32, abs=0.01)
    assert "size + mis-tuning" in sentence(caveat)


def test_control_that_ends_higher_is_told():
    found = verdict_of(make_cells(x4=0.5, x4u=0.7))
    assert {"caveat_control_better", "caveat_lower_tuning"} <= set(keys(found.caveats))


def test_fall_without_co_adjustment_does_not_blame_size():
    found = verdict_of(
        make_cells(x4u=0.2, without=["x2", "x4"], g4=0.5, g16=0.7), rules={"use": "none"}
    )
    assert found.answer is Answer.NOT_ENOUGH
    assert "scale_mistuned" in keys(found.reasons)
    assert found.next_spend.key == "decide_adjusted"
    assert "caveat_no_adjusted" in keys(found.caveats)


def test_missing_control_is_told():
    found = verdict_of(make_cells(without=["x2u", "x4u"]))
    assert keys(found.caveats).count("caveat_no_control") == 2


@pytest.mark.parametrize("state", ["stopped", "failed"])
def test_one_broken_run_is_not_enough_evidence(state: str):
    cells = swap(make_cells(), "ladder-x2-g8-t1-adjusted-s1", state=state, reason="because")
    found = verdict_of(cells)
    assert found.answer is Answer.NOT_ENOUGH
    assert found.reasons[0].key == "health_some"
    assert found.next_spend.key == "decide_rerun"
    assert "caveat_stopped" in keys(found.caveats)


def test_failed_processes_are_no_evidence_against_the_recipe():
    cells = make_cells()
    for seed in (1, 2, 3):
        name = f"ladder-x4-g8-t1-adjusted-s{seed}"
        cells = swap(cells, name, state="failed", final_score=None)
    found = verdict_of(cells)
    assert found.answer is Answer.NOT_ENOUGH
    assert "caveat_point_missing" in keys(found.caveats)


def test_all_seeds_stopped_without_score_is_no_go():
    cells = make_cells()
    for seed in (1, 2, 3):
        name = f"ladder-x4-g8-t1-adjusted-s{seed}"
        cells = swap(cells, name, state="stopped", final_score=None)
    assert verdict_of(cells).answer is Answer.NO_GO


def test_broken_control_does_not_decide():
    cells = make_cells()
    control = [c for c in cells if c.arm == "unadjusted"]
    found = verdict_of(cells, [make_critical(c) for c in control])
    assert found.answer is Answer.GO
    assert "caveat_control_broken" in keys(found.caveats)


def test_finding_that_did_not_fire_or_only_warns_does_not_decide():
    cells = make_cells()
    mild = [
        replace(make_critical(cells[0]), severity=Severity.WARNING),
        replace(make_critical(cells[0]), outcome=Outcome.CANNOT_SAY),
    ]
    assert verdict_of(cells, mild).answer is Answer.GO


def test_critical_finding_about_the_study_keeps_it_open():
    whole = Finding(detector="S1", outcome=Outcome.FIRED, severity=Severity.CRITICAL)
    found = verdict_of(make_cells(), [whole])
    assert found.answer is Answer.NOT_ENOUGH
    assert found.next_spend.key == "decide_study_finding"


def test_ceiling_is_told():
    high = dict.fromkeys(("base", "x2", "x4", "x2u", "x4u", "g4", "g16", "long"), 0.985)
    found = verdict_of(make_cells(**high, noise=0.5))
    assert "caveat_ceiling" in keys(found.caveats)
    assert found.next_spend.key == "decide_harder_task"
    assert "lower" not in " ".join(keys(found.caveats)).replace("caveat_lower_ceiling", "")


def test_no_room_for_a_gain_is_not_a_failure_of_the_recipe():
    high = dict.fromkeys(("base", "x2", "x4", "x2u", "x4u", "g4", "g16", "long"), 0.97)
    found = verdict_of(make_cells(**high, noise=0.5, base_score=0.95))
    assert found.answer is Answer.NOT_ENOUGH
    assert "gain_no_room" in keys(found.reasons)
    assert found.next_spend.key == "decide_harder_task"


def test_trims_are_caveats_and_bar_high_confidence():
    found = verdict_of(make_cells(seeds=5), trims=["samples_per_prompt=16 was left out"])
    assert found.caveats[0].key == "caveat_trimmed"
    assert found.confidence.key == "confidence_moderate"


def test_two_seeds_are_told_and_lower_the_confidence():
    found = verdict_of(make_cells(seeds=2))
    assert "caveat_few_seeds" in keys(found.caveats)
    assert found.confidence.key == "confidence_low_seeds"


def test_one_seed_gives_no_verdict():
    found = verdict_of(make_cells(seeds=1))
    assert found.answer is Answer.NOT_ENOUGH
    assert found.confidence.key == "confidence_low_seeds"


def test_pending_cells_are_finished_first():
    cells = swap(make_cells(), "ladder-x4-g8-t1-adjusted-s3", state="pending", final_score=None)
    found = verdict_of(cells)
    assert found.answer is Answer.NOT_ENOUGH
    assert found.next_spend.key == "decide_finish"
    assert "caveat_pending" in keys(found.caveats)


def test_size_that_never_ran_leaves_scaling_open():
    found = verdict_of(make_cells(without=["x2", "x4", "x2u", "x4u"]))
    assert found.answer is Answer.NOT_ENOUGH
    assert "scale_not_measured" in keys(found.reasons)
    assert found.next_spend.key == "decide_second_point"


def test_small_evaluation_is_told():
    found = verdict_of(make_cells(), base={"eval": {"num_prompts": 64}})
    assert "caveat_small_eval" in keys(found.caveats)


def test_lower_size_within_noise_is_called_noise():
    assert "caveat_lower_noise" in keys(verdict_of(make_cells(x2=0.598)).caveats)


def test_other_target_axes_are_judged_too():
    found = verdict_of(make_cells(g16=0.3), target={"axis": "samples_per_prompt"})
    assert found.answer is Answer.NO_GO
    assert found.reasons[0].values["axis"] == "samples_per_prompt"


def test_steady_decline_is_judged_at_the_target():
    cells = make_cells(x2=0.585, x4=0.57, x2u=0.58, x4u=0.56, noise=0.1)
    found = verdict_of(cells, target={"margin": 0.04, "ratio": 4.0})
    assert found.answer is Answer.NO_GO
    assert found.reasons[0].key == "trend_falls"
    assert found.reasons[0].values["gain"] == pytest.approx(-0.06, abs=0.005)
    assert found.what_would_change_it.key == "change_trend"


def test_every_sentence_has_both_languages_and_the_same_values():
    for key, texts in TEXTS.items():
        assert set(texts) == {"en", "zh"}, key
        assert names_of(texts["en"]) == names_of(texts["zh"]), key


def test_sentences_translate_axes():
    reason = Reason(key="decide_second_point", values={"axis": "model", "seeds": 3})
    assert "model size" in sentence(reason)
    assert "模型规模" in sentence(reason, "zh")
    assert sentence(reason, "fr") == sentence(reason)


def test_names_keep_their_case_and_axes_begin_a_sentence_with_a_capital():
    values = {"point": "ladder-x2", "difference": -0.1, "low": -0.2, "high": 0.0, "n": 3}
    assert sentence(Reason(key="caveat_lower_unknown", values=values)).startswith("ladder-x2")
    few = Reason(key="caveat_few_seeds", values={"axis": "steps", "point": "2", "n": 1})
    assert sentence(few).startswith("Training steps 2")
