"""Conformance of a monitor: what every detector, ours or a stranger's, must meet."""

from __future__ import annotations

import numpy as np

from stepladder.core.finding import Finding, Outcome
from stepladder.core.record import RunRecord
from stepladder.core.seams import Monitor
from stepladder.testing.simulate import Simulation, first, healthy


def check_monitor(monitor: Monitor) -> None:
    """Assert that a monitor keeps its contract; raises AssertionError with what it broke."""
    assert isinstance(monitor, Monitor), f"{monitor!r} lacks `needs` or `check`"
    empty = RunRecord(
        run="empty", settings={}, steps=np.zeros(0, int), metrics={}, evals=(), status="unknown"
    )
    nothing = monitor.check(empty)
    assert nothing.outcome is Outcome.CANNOT_SAY, (
        f"said {nothing.outcome} of a record without a row"
    )
    assert set(nothing.needs) <= set(monitor.needs), "asks for metrics that it does not declare"
    record = healthy(Simulation(seed=0))
    for num_rows in (1, 5, 20, 50, 200):
        part = first(record, num_rows)
        finding = monitor.check(part)
        assert isinstance(finding, Finding)
        assert finding == monitor.check(part), "says two things of one record"
        if finding.outcome is Outcome.FIRED:
            assert finding.evidence, "fired without a number"
