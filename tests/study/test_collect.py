import pytest
from factories import FakeFolder, make_small_plan, write_run

from stepladder.study.collect import cell_folder, collect_cells


def test_cells_come_in_the_plans_order_and_missing_ones_are_pending(tmp_path):
    plan = make_small_plan()
    found = collect_cells(plan, FakeFolder(tmp_path))
    assert [cell.cell for cell in found] == [cell.id for cell in plan.cells]
    assert {cell.state for cell in found} == {"pending"}
    assert {cell.final_score for cell in found} == {None}


def test_a_finished_cell_has_scores_cost_and_series(tmp_path):
    plan = make_small_plan()
    write_run(cell_folder(tmp_path, plan.cells[0]), plan.cells[0].run)
    cell = collect_cells(plan, FakeFolder(tmp_path))[0]
    assert cell.state == "done"
    assert cell.base_score == 0.25
    assert cell.final_score == pytest.approx((0.5 + 0.75) / 2)
    assert cell.trajectory.steps == (0, 2, 4)
    assert cell.trajectory.samples == (0, 512, 1024)
    assert cell.seconds == pytest.approx(4 * 0.5 + 3 * 0.25)
    assert (cell.num_tokens, cell.num_parameters) == (4000, 1234)
    assert cell.metrics["kl_ref"][0] == (1, 0.01)
    assert cell.run_folder == f"runs/{plan.cells[0].id}"


def test_step_0_never_counts_as_a_final_score(tmp_path):
    plan = make_small_plan()
    write_run(cell_folder(tmp_path, plan.cells[0]), plan.cells[0].run, scores={0: 0.25})
    cell = collect_cells(plan, FakeFolder(tmp_path))[0]
    assert (cell.base_score, cell.final_score) == (0.25, None)


def test_a_torn_last_line_is_skipped(tmp_path):
    plan = make_small_plan()
    folder = cell_folder(tmp_path, plan.cells[0])
    write_run(folder, plan.cells[0].run)
    with (folder / "evals.jsonl").open("a") as stream:
        stream.write('{"step": 6, "m": {"eval/pa')
    assert collect_cells(plan, FakeFolder(tmp_path))[0].trajectory.steps == (0, 2, 4)


def test_a_folder_of_another_run_is_not_counted(tmp_path):
    plan = make_small_plan()
    write_run(cell_folder(tmp_path, plan.cells[0]), plan.cells[1].run)
    cell = collect_cells(plan, FakeFolder(tmp_path))[0]
    assert (cell.state, cell.final_score) == ("pending", None)


def test_a_stopped_cell_keeps_its_reason(tmp_path):
    plan = make_small_plan()
    cell = plan.cells[0]
    write_run(cell_folder(tmp_path, cell), cell.run, state="stopped", reason="KL above 1")
    found = collect_cells(plan, FakeFolder(tmp_path))[0]
    assert (found.state, found.reason) == ("stopped", "KL above 1")


def test_long_series_are_thinned(tmp_path):
    plan = make_small_plan()
    write_run(cell_folder(tmp_path, plan.cells[0]), plan.cells[0].run, num_steps=1001)
    series = collect_cells(plan, FakeFolder(tmp_path))[0].metrics["kl_ref"]
    assert len(series) <= 200
    assert series[0][0] == 1
