"""The worker's observer: gate first, then requests to drain, and the past on resume."""

from stepladder.core.control import ActionKind
from stepladder.core.metrics import StepMetrics
from stepladder.launch.observe import DrainSignal, RunObserver
from stepladder.monitors.validation import ValidationGate
from stepladder.spec.run import ValidationSpec
from stepladder.store.run_store import RunStore


def at(step, kl=0.0, non_finite=()):
    return StepMetrics(
        step=step,
        values={"kl_ref": kl},
        system={},
        num_samples=0,
        num_tokens=0,
        non_finite=non_finite,
    )


def an_observer(folder, drain=None):
    gate = ValidationGate(ValidationSpec())
    stop = folder / "STOP"
    return RunObserver(gate, RunStore(folder), drain or DrainSignal(), [stop])


def test_a_stop_file_drains(tmp_path):
    observer = an_observer(tmp_path)
    assert observer.on_step(at(1)).kind is ActionKind.CONTINUE
    (tmp_path / "STOP").touch()
    answer = observer.on_step(at(2))
    assert (answer.kind, answer.resumable) == (ActionKind.STOP, True)
    assert observer.drained


def test_a_signal_drains(tmp_path):
    drain = DrainSignal()
    observer = an_observer(tmp_path, drain)
    drain.is_set = True
    assert observer.on_step(at(1)).reason == "asked to stop"


def test_the_gate_goes_before_a_request_to_drain(tmp_path):
    (tmp_path / "STOP").touch()
    observer = an_observer(tmp_path)
    answer = observer.on_step(at(3, kl=9.0))
    assert "max_kl" in answer.reason
    assert (observer.drained, answer.resumable) == (False, False)


def test_a_resumed_run_counts_what_earlier_sessions_saw(tmp_path):
    store = RunStore(tmp_path)
    bad = ("loss",)
    for step in (1, 2):
        store.step(at(step, non_finite=bad))
    observer = an_observer(tmp_path)
    assert observer.on_step(at(3, non_finite=bad)).kind is ActionKind.STOP


def test_a_stop_that_was_not_told_in_time_is_told_with_its_step(tmp_path):
    RunStore(tmp_path).step(at(4, kl=9.0))
    observer = an_observer(tmp_path)
    assert "step 4" in observer.on_step(at(5)).reason
