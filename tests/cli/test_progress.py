from stepladder.cli.output import clock, language, table
from stepladder.cli.progress import LineProgress, TrainProgress


class Clock:
    def __init__(self):
        self.t = 0.0

    def __call__(self):
        return self.t


def test_one_line_a_cell_with_eta():
    lines, now = [], Clock()
    progress = LineProgress(lines.append, now)
    progress.begin(4, 1, 90.0)
    now.t = 30.0
    progress.ended("a", "done", 30.0, "pass@1 0.2 -> 0.5")
    now.t = 100.0
    progress.ended("b", "stopped", 70.0, "KL above 1")
    progress.ended("c", "done", 70.0, "")
    assert lines == [
        "4 runs, 1 finished already, about 1m30s",
        "[2/4] a  done  30s  pass@1 0.2 -> 0.5  eta 1m00s",
        "[3/4] b  stopped  1m10s  KL above 1  eta 50s",
        "[4/4] c  done  1m10s",
    ]


def test_a_sign_of_life_each_minute():
    lines, now = [], Clock()
    progress = LineProgress(lines.append, now)
    progress.begin(2, 0, None)
    for second in range(0, 121, 10):
        now.t = float(second)
        progress.tick(["a"])
    assert lines == ["2 runs", "0/2 done, running a", "0/2 done, running a"]


def test_training_is_followed_once_a_row(tmp_path):
    from factories import make_small_plan, write_run

    write_run(tmp_path, make_small_plan().cells[0].run, num_steps=10)
    lines = []
    progress = TrainProgress(tmp_path, 10, write=lines.append)
    progress.tick(["run"])
    progress.tick(["run"])
    assert [line[:10].rstrip() for line in lines] == [
        "step   10/",
        "step    0",
        "step    2",
        "step    4",
    ]


def test_times_are_short():
    assert [clock(s) for s in (0.4, 59, 61, 3600, 7260)] == ["0s", "59s", "1m01s", "1h00m", "2h01m"]


def test_language_falls_back_to_the_locale(monkeypatch):
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    assert language(None) == "en"
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    assert language(None) == "zh"
    monkeypatch.setenv("LC_ALL", "C")
    assert language(None) == "en"
    assert language("zh") == "zh"


def test_tables_align_numbers_right():
    assert table(("name", "n"), [("a", "5"), ("bb", "10")]) == "name   n\na      5\nbb    10"
