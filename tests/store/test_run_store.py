"""The run folder: rows, sessions, truncation on resume, and the record read back."""

import gzip
import json
import multiprocessing

import numpy as np
import pytest

from stepladder.core.errors import StoreError
from stepladder.core.job import JobState
from stepladder.core.metrics import StepMetrics
from stepladder.core.prompt import Split, make_prompt
from stepladder.core.record import EvalRow
from stepladder.core.rollout import Completion, Rollout, RolloutGroup, StopReason
from stepladder.spec.run import RecordSpec
from stepladder.store import layout
from stepladder.store.run_store import RunStore

RUN_JSON = {"run_id": "abc", "settings": {"optim.lr": 1e-4}, "seeds": {"run": 1}}


def measured(step, reward=0.5, **more):
    return StepMetrics(
        step=step,
        values={"reward_mean": reward, "kl_ref": 0.01 * step, **more},
        system={"time_step_s": 0.3},
        num_samples=8 * step,
        num_tokens=100 * step,
    )


def evaluated(step, score=0.4):
    return EvalRow(
        step=step, values={"eval/pass@1": score}, items={"p": (1, 2)}, num_samples_seen=8 * step
    )


def a_group(text="<answer>4</answer>", reward=1.0):
    prompt = make_prompt("2+2=", "4", Split.TRAIN)
    rollouts = tuple(
        Rollout(
            prompt=prompt,
            completion=Completion(
                prompt_id=prompt.id,
                sample=sample,
                prompt_token_ids=(1, 2),
                token_ids=(3, 4),
                logprobs=(-0.1, -0.2),
                stop=StopReason.EOS,
                policy_version=0,
                text=text,
            ),
            terms={"outcome": reward},
            reward=reward,
        )
        for sample in range(2)
    )
    return RolloutGroup(group_id=0, prompt=prompt, rollouts=rollouts)


def without_sys(path):
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [{name: value for name, value in row.items() if name != "sys"} for row in rows]


def write_run(folder, steps):
    store = RunStore(folder)
    store.begin(RUN_JSON)
    store.evaluation(evaluated(0), {"time_eval_s": 0.1})
    for step in steps:
        store.step(measured(step))
        if step % 2 == 0:
            store.evaluation(evaluated(step), {})
            store.rollouts(step, [a_group()])
    return store


def test_rows_come_back_as_arrays(tmp_path):
    store = write_run(tmp_path / "run", [1, 2, 3])
    store.end(JobState.DONE, num_parameters=7)
    record = store.record()
    assert record.steps.tolist() == [1, 2, 3]
    np.testing.assert_allclose(record.metrics["kl_ref"], [0.01, 0.02, 0.03])
    assert record.metrics["time_step_s"].tolist() == [0.3] * 3
    assert record.metrics["num_samples"].tolist() == [8, 16, 24]
    assert "t" not in record.metrics
    assert [row.step for row in record.evals] == [0, 2]
    assert record.evals[0].items == {"p": (1, 2)}
    assert record.status == "done"
    assert record.settings == {"optim.lr": 1e-4}
    assert record.samples is not None
    assert [row["step"] for row in record.samples()] == [2, 2]


def test_everything_that_is_not_reproducible_is_under_sys(tmp_path):
    write_run(tmp_path / "a", [1, 2])
    write_run(tmp_path / "b", [1, 2])
    for name in (layout.METRICS, layout.EVALS):
        assert without_sys(tmp_path / "a" / name) == without_sys(tmp_path / "b" / name)
    dumps = [layout.rollout_file(tmp_path / run, 2).read_bytes() for run in "ab"]
    assert dumps[0] == dumps[1]


def test_values_that_are_not_finite_are_named_not_written(tmp_path):
    store = RunStore(tmp_path)
    store.step(measured(1, grad_norm=float("nan"), loss=float("inf")))
    store.step(measured(2, grad_norm=1.0))
    record = store.record()
    assert record.non_finite == {"grad_norm": (1,), "loss": (1,)}
    assert np.isnan(record.metrics["grad_norm"][0])
    assert "NaN" not in (tmp_path / layout.METRICS).read_text()
    assert store.steps()[0].non_finite == ("grad_norm", "loss")


def test_truncation_drops_every_later_row_and_file(tmp_path):
    write_run(tmp_path, range(1, 7))
    store = RunStore(tmp_path)
    store.truncate_after(3)
    record = store.record()
    assert record.steps.tolist() == [1, 2, 3]
    assert [row.step for row in record.evals] == [0, 2]
    assert not layout.rollout_file(tmp_path, 4).exists()
    assert layout.rollout_file(tmp_path, 2).exists()
    store.truncate_after(-1)
    assert store.record().steps.tolist() == []
    assert store.evaluations() == []


@pytest.mark.parametrize("torn", [b'{"step":4,"m":{"rew', b'{"step":4', b"\xff"])
def test_a_torn_tail_is_counted_and_mended_on_resume(tmp_path, torn):
    write_run(tmp_path, [1, 2, 3])
    with (tmp_path / layout.METRICS).open("ab") as stream:
        stream.write(torn)
    store = RunStore(tmp_path)
    assert store.num_torn() == 1
    assert store.record().steps.tolist() == [1, 2, 3]
    store.truncate_after(2)
    store.step(measured(3))
    assert store.num_torn() == 0
    assert store.record().steps.tolist() == [1, 2, 3]


def test_a_resumed_run_has_the_rows_of_an_uninterrupted_one(tmp_path):
    write_run(tmp_path / "whole", range(1, 7))
    write_run(tmp_path / "cut", range(1, 6))
    store = RunStore(tmp_path / "cut")
    store.begin(RUN_JSON)
    store.truncate_after(3)
    for step in range(4, 7):
        store.step(measured(step))
        if step % 2 == 0:
            store.evaluation(evaluated(step), {})
            store.rollouts(step, [a_group()])
    for name in (layout.METRICS, layout.EVALS):
        assert without_sys(tmp_path / "cut" / name) == without_sys(tmp_path / "whole" / name)


def test_a_session_that_forgets_to_truncate_writes_no_step_twice(tmp_path):
    write_run(tmp_path, [1, 2, 3, 4])
    store = RunStore(tmp_path)
    store.step(measured(3, reward=0.9))
    assert [m.step for m in store.steps() if m.values.get("reward_mean")] == [1, 2, 3]
    assert store.record().metrics["reward_mean"].tolist() == [0.5, 0.5, 0.9]


def test_sessions_are_the_lineage(tmp_path):
    store = RunStore(tmp_path)
    first = store.begin(RUN_JSON)
    store.end(JobState.PENDING, "asked to stop")
    second = store.begin(RUN_JSON)
    assert store.record().lineage == (first, second)


def test_another_run_in_the_folder_is_refused(tmp_path):
    store = RunStore(tmp_path)
    store.begin(RUN_JSON)
    with pytest.raises(StoreError, match="holds run abc"):
        store.begin({**RUN_JSON, "run_id": "xyz"})


def test_another_format_is_refused(tmp_path):
    (tmp_path / layout.RUN).write_text('{"format_version": 99}')
    with pytest.raises(StoreError, match="format 99"):
        RunStore(tmp_path).header()


def test_one_writer_and_running_without_a_writer_is_pending(tmp_path):
    store = RunStore(tmp_path)
    with store.lock():
        store.begin(RUN_JSON)
        assert store.status().state is JobState.RUNNING
        with pytest.raises(StoreError, match="another process"), RunStore(tmp_path).lock():
            pass
    assert store.status().state is JobState.PENDING
    assert "interrupted" in store.status().reason


def _hold(folder, ready, wait):
    with RunStore(folder).lock():
        ready.set()
        wait.wait()


def test_a_killed_writer_holds_nothing(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready, wait = context.Event(), context.Event()
    child = context.Process(target=_hold, args=(tmp_path, ready, wait))
    child.start()
    assert ready.wait(60)
    with pytest.raises(StoreError), RunStore(tmp_path).lock():
        pass
    child.kill()
    child.join()
    with RunStore(tmp_path).lock(wait_s=5):
        pass
    child.close()


def test_rollouts_keep_what_the_settings_say(tmp_path):
    store = RunStore(tmp_path, RecordSpec(rollouts_per_dump=1, store_text=False))
    store.rollouts(5, [a_group(reward=float("nan"))])
    with gzip.open(layout.rollout_file(tmp_path, 5), "rt") as lines:
        rows = [json.loads(line) for line in lines]
    assert len(rows) == 1
    assert "completion" not in rows[0]
    assert rows[0]["reward"] is None


def test_an_empty_folder_has_a_record_without_rows(tmp_path):
    record = RunStore(tmp_path).record()
    assert record.status == "unknown"
    assert len(record.steps) == 0
    assert record.samples is None
