"""Thread settings of a worker, and job files."""

import pytest

from stepladder.core.errors import SpecError, StoreError
from stepladder.core.job import Job, JobKind
from stepladder.launch.job_file import read_job, run_of, write_job
from stepladder.launch.process import worker_environment
from stepladder.spec.run import RunSpec


def test_every_library_is_held_to_its_threads(monkeypatch):
    monkeypatch.delenv("MALLOC_TOP_PAD_", raising=False)
    found = worker_environment(3)
    assert found["OMP_NUM_THREADS"] == found["MKL_NUM_THREADS"] == "3"
    assert "MALLOC_TOP_PAD_" in found
    monkeypatch.setenv("MALLOC_TOP_PAD_", "1")
    assert "MALLOC_TOP_PAD_" not in worker_environment(1)


def test_a_job_comes_back_and_names_no_machine_path(tmp_path):
    job = Job(kind=JobKind.RUN, id="a", folder=tmp_path, payload={"run": {"seed": 4}}, threads=2)
    path = write_job(job)
    assert read_job(path) == job
    assert str(tmp_path) not in path.read_text()
    assert run_of(job).seed == 4


def test_the_payload_may_be_the_run_itself(tmp_path):
    payload = RunSpec(seed=9).model_dump(mode="json")
    assert run_of(Job(kind=JobKind.RUN, id="a", folder=tmp_path, payload=payload)).seed == 9


def test_a_wrong_job_is_one_clear_error(tmp_path):
    (tmp_path / "job.json").write_text('{"kind": "dance"}')
    with pytest.raises(StoreError, match="not a job"):
        read_job(tmp_path / "job.json")
    with pytest.raises(SpecError, match="learning_rat"):
        run_of(Job(kind=JobKind.RUN, id="a", folder=tmp_path, payload={"run": {"learning_rat": 1}}))
