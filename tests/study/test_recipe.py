import pytest

from stepladder.core.errors import PlanError
from stepladder.spec.run import RunSpec
from stepladder.study.recipe import RULES, apply_rules, kept_settings, with_settings

REPORTS = RULES["reports"]


def test_model_doubling_gives_the_reports_worked_example():
    run = with_settings(
        RunSpec(), {"optim.lr": 1.5e-5, "kl.coef": 0.02, "entropy.coef": 0.01}, "base"
    )
    moved, changes = apply_rules(run, "model", 2.0, REPORTS)
    assert moved.optim.lr == pytest.approx(1.0e-5)
    assert moved.kl.coef == pytest.approx(0.01)
    assert 0.012 <= moved.entropy.coef <= 0.013
    assert [change.path for change in changes] == ["optim.lr", "kl.coef", "entropy.coef"]


def test_a_ratio_of_four_takes_the_factor_twice():
    moved, _ = apply_rules(RunSpec(), "model", 4.0, REPORTS)
    assert moved.optim.lr == pytest.approx(RunSpec().optim.lr * (2 / 3) ** 2, rel=1e-5)
    assert moved.kl.coef == pytest.approx(RunSpec().kl.coef / 4)


def test_halving_the_batch_is_the_inverse_of_doubling_it():
    up, _ = apply_rules(RunSpec(), "samples_per_prompt", 2.0, REPORTS)
    down, _ = apply_rules(RunSpec(), "samples_per_prompt", 0.5, REPORTS)
    assert up.optim.lr == pytest.approx(RunSpec().optim.lr * 1.2)
    assert up.optim.lr * down.optim.lr == pytest.approx(RunSpec().optim.lr ** 2, rel=1e-5)


def test_every_change_has_before_after_rule_and_evidence():
    run, changes = apply_rules(RunSpec(), "model", 2.0, REPORTS, cell_kind="model=x2 adjusted")
    leaves_before, leaves_after = RunSpec().leaves(), run.leaves()
    for change in changes:
        assert change.before == leaves_before[change.path]
        assert change.after == leaves_after[change.path]
        assert change.rule
        assert "practitioner" in change.evidence
        assert change.cell_kind == "model=x2 adjusted"


def test_the_control_lists_what_it_kept():
    kept = kept_settings(RunSpec(), "model", REPORTS)
    assert [change.path for change in kept] == ["optim.lr", "kl.coef", "entropy.coef"]
    assert all(change.before == change.after for change in kept)


def test_no_rules_move_nothing():
    assert apply_rules(RunSpec(), "model", 2.0, RULES["none"]) == (RunSpec(), ())


def test_every_factor_lies_in_its_sources_range():
    for rule in REPORTS:
        assert rule.low <= rule.factor <= rule.high
        assert rule.reason
        assert rule.leaf in RunSpec().leaves()


def test_a_cell_that_contradicts_itself_names_the_cell():
    run = with_settings(RunSpec(), {"optim.minibatch_size": 128}, "base")
    with pytest.raises(PlanError, match=r"samples_per_prompt=4.*minibatch_size"):
        with_settings(run, {"sampling.samples_per_prompt": 4}, "samples_per_prompt=4 adjusted")
