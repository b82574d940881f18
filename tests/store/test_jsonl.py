"""Line files survive a kill at any byte; whole files are replaced or left alone."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepladder.core.errors import StoreError
from stepladder.store import jsonl


def test_a_missing_file_has_no_rows(tmp_path):
    assert jsonl.read_rows(tmp_path / "none.jsonl") == jsonl.Rows((), 0)


@given(
    cut=st.integers(0, 200), rows=st.lists(st.dictionaries(st.text(), st.integers()), max_size=5)
)
def test_any_prefix_reads_back_as_a_prefix_of_rows(cut, rows):
    data = "".join(jsonl.encode(row) + "\n" for row in rows).encode()
    found = jsonl.decode_rows(data[:cut])
    assert list(found.rows) == rows[: len(found.rows)]
    assert found.num_torn <= 1


@pytest.mark.parametrize("cut", range(1, 20))
def test_appending_after_a_kill_never_joins_two_rows(tmp_path, cut):
    path = tmp_path / "rows.jsonl"
    jsonl.append_row(path, {"step": 1})
    jsonl.append_row(path, {"step": 2})
    data = path.read_bytes()
    path.write_bytes(data[:cut])
    jsonl.mend_tail(path)
    jsonl.append_row(path, {"step": 9})
    found = jsonl.read_rows(path)
    assert found.num_torn == 0
    assert found.rows[-1] == {"step": 9}


def test_a_torn_line_in_the_middle_is_skipped_and_counted(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a":1}\n{"a":\n\xff\xfe\n[1]\n{"a":2}\n')
    assert jsonl.read_rows(path) == jsonl.Rows(({"a": 1}, {"a": 2}), 3)


def test_nan_is_never_written(tmp_path):
    with pytest.raises(ValueError, match="JSON compliant"):
        jsonl.append_row(tmp_path / "rows.jsonl", {"x": float("nan")})
    assert not (tmp_path / "rows.jsonl").exists()


def test_a_failed_write_leaves_the_old_file_and_no_scratch(tmp_path, monkeypatch):
    path = tmp_path / "plan.json"
    jsonl.write_json(path, {"version": 1})

    def full(_handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StoreError, match="No space left"):
        jsonl.write_json(path, {"version": 2})
    assert jsonl.read_json(path) == {"version": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["plan.json"]


@pytest.mark.parametrize("text", ["", "{", "[1]", "nonsense"])
def test_a_json_file_that_is_no_object_is_one_clear_error(tmp_path, text):
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(StoreError, match=r"run\.json"):
        jsonl.read_json(path)


def test_written_json_is_readable_by_people(tmp_path):
    jsonl.write_json(tmp_path / "new" / "x.json", {"name": "梯"})
    text = (tmp_path / "new" / "x.json").read_text(encoding="utf-8")
    assert "梯" in text
    assert json.loads(text) == {"name": "梯"}
