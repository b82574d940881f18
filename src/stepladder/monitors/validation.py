"""The validation gate: stops a run that cannot become a healthy one, early and with its reason.

It judges a run by itself, never by its rank among cells: killing the slow half would bias the
comparison that the study is for.
"""

from __future__ import annotations

from stepladder.core.control import CONTINUE, Action, stop
from stepladder.core.metrics import StepMetrics
from stepladder.spec.run import ValidationSpec

SCORE = "eval/pass@1"
KL = "kl_ref"
WATCHED = frozenset({"loss", "grad_norm"})
MAX_NON_FINITE_IN_A_ROW = 3
"""One bad batch is skipped by the loop; three in a row do not mend themselves."""


class ValidationGate:
    """Watches one run from step 0; the KL and non-finite rules hold to its end."""

    def __init__(self, spec: ValidationSpec, base_score: float | None = None) -> None:
        """Take the thresholds; the base score is read from step 0 when it is not given.

        With `spec.steps` 0 the score is never judged; the two belts stay.
        """
        self._spec = spec
        self._base_score = base_score
        self._judged = spec.steps == 0
        self._num_non_finite = 0

    def on_step(self, metrics: StepMetrics) -> Action:
        """Return CONTINUE, or a stop with the reason."""
        reason = self._belts(metrics) or self._score(metrics)
        return stop(reason) if reason else CONTINUE

    def _belts(self, metrics: StepMetrics) -> str:
        bad = sorted(WATCHED.intersection(metrics.non_finite))
        self._num_non_finite = self._num_non_finite + 1 if bad else 0
        if self._num_non_finite >= MAX_NON_FINITE_IN_A_ROW:
            return (
                f"{' and '.join(bad)} not finite in {self._num_non_finite} steps in a row,"
                f" up to step {metrics.step}"
            )
        kl = metrics.values.get(KL)
        if kl is not None and kl > self._spec.max_kl:
            return (
                f"KL to the reference is {kl:.3g} nats per token at step {metrics.step},"
                f" above validation.max_kl {self._spec.max_kl:g}"
            )
        return ""

    def _score(self, metrics: StepMetrics) -> str:
        score = metrics.values.get(SCORE)
        if score is None:
            return ""
        if metrics.step == 0 and self._base_score is None:
            self._base_score = score
        if self._judged or metrics.step < self._spec.steps:
            return ""
        self._judged = True
        if self._base_score is None:
            return ""
        least = self._spec.min_score_share * self._base_score
        if score >= least:
            return ""
        return (
            f"held-out pass@1 is {score:.3f} at step {metrics.step}, below"
            f" {self._spec.min_score_share:g} of the base policy's {self._base_score:.3f}"
        )
