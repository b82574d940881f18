"""Rows of the user: both schemas, splits by hash or by file, and every fault named by line."""

import json

import pytest

from stepladder.core.errors import PlanError, SpecError
from stepladder.core.prompt import Split
from stepladder.tasks.registry import anchor_paths, build_task
from stepladder.tasks.split import assert_disjoint, overlap
from stepladder.testing.tasks import check_hash_seeds, check_task


def write(path, rows):
    path.write_text("".join(f"{r if isinstance(r, str) else json.dumps(r)}\n" for r in rows))
    return str(path)


def plain(count, start=0):
    return [{"prompt": f"{i} plus 1?", "answer": i + 1} for i in range(start, start + count)]


def verl(number):
    return {
        "data_source": "mine",
        "prompt": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": f"Name number {number}."},
        ],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": f"n{number}"},
        "extra_info": {"index": number},
    }


def test_plain_rows_split_by_hash(tmp_path):
    task = build_task({"type": "rows", "path": write(tmp_path / "mine.jsonl", plain(300))})
    assert (task.name, task.outcome) == ("mine", "numeric")
    sizes = {split.value: len(task.prompts(split)) for split in Split}
    assert sum(sizes.values()) == 300
    assert 15 <= sizes["eval"] <= 50 and 15 <= sizes["holdout"] <= 50
    check_task(task, num_prompts=100)


def test_a_prompt_keeps_its_split_when_rows_are_added(tmp_path):
    def places(count):
        task = build_task({"type": "rows", "path": write(tmp_path / "a.jsonl", plain(count))})
        return {p.id: split for split in Split for p in task.prompts(split)}

    few, many = places(200), places(260)
    assert all(many[key] is split for key, split in few.items())


def test_few_rows_still_give_every_split_something(tmp_path):
    task = build_task({"type": "rows", "path": write(tmp_path / "a.jsonl", plain(4))})
    assert all(task.prompts(split) for split in Split)
    assert overlap(task) == []


def test_verl_rows(tmp_path):
    path = write(tmp_path / "a.jsonl", [verl(i) for i in range(40)])
    task = build_task({"type": "rows", "path": path, "holdout_share": 0})
    prompt = task.prompts(Split.EVAL)[0]
    assert task.outcome == "exact"
    assert [message.role for message in prompt.messages] == ["system", "user"]
    assert prompt.data_source == "mine" and prompt.gold == f"n{prompt.extra['index']}"
    assert task.oracle(prompt).endswith(f"<answer>{prompt.gold}</answer>")
    assert len(task.prompts(Split.HOLDOUT)) == 0
    check_task(task, num_prompts=40)


def test_instructions_go_to_the_users_message(tmp_path):
    path = write(tmp_path / "a.jsonl", [verl(i) for i in range(20)])
    task = build_task({"type": "rows", "path": path, "instructed": True})
    system, user = task.prompts(Split.TRAIN)[0].messages
    assert system.content == "Be brief." and "<answer>" in user.content


def test_files_of_their_own(tmp_path):
    write(tmp_path / "train.jsonl", plain(20))
    write(tmp_path / "eval.jsonl", plain(6, start=50))
    mapping = {"type": "rows", "path": "train.jsonl", "eval_path": "eval.jsonl"}
    mapping["holdout_path"] = "holdout.jsonl"
    task = build_task(mapping, folder=tmp_path)
    assert [len(task.prompts(s)) for s in (Split.TRAIN, Split.EVAL)] == [20, 6]
    assert all(prompt.split is Split.EVAL for prompt in task.prompts(Split.EVAL))
    with pytest.raises(SpecError, match=r"holdout\.jsonl: cannot be read"):
        task.prompts(Split.HOLDOUT)  # read only now
    write(tmp_path / "holdout.jsonl", plain(3, start=90))
    assert len(task.prompts(Split.HOLDOUT)) == 3


def test_overlapping_files_are_refused(tmp_path):
    path = write(tmp_path / "train.jsonl", plain(20))
    eval_path = write(tmp_path / "eval.jsonl", plain(10, start=17))
    task = build_task({"type": "rows", "path": path, "eval_path": eval_path, "holdout_share": 0})
    with pytest.raises(PlanError, match=r"SL0230 task train: 3 of 10 .*'17 plus 1\?'"):
        assert_disjoint(task)


def test_paths_are_anchored_where_the_file_is(tmp_path):
    anchored = anchor_paths({"type": "rows", "path": "a.jsonl", "limit": 3}, tmp_path)
    assert anchored == {"type": "rows", "path": str(tmp_path / "a.jsonl"), "limit": 3}
    assert anchor_paths({"type": "letters"}, tmp_path) == {"type": "letters"}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"prompt": "a", "answer": ', "a.jsonl:2: is not valid JSON"),
        ('{"prompt": "a", "answer": NaN}', "a.jsonl:2: is not valid JSON: NaN"),
        ("[1]", "a.jsonl:2: holds a list"),
        ({"answer": 1}, "a.jsonl:2: has no `prompt`"),
        ({"prompt": " ", "answer": 1}, "a.jsonl:2: has an empty `prompt`"),
        ({"prompt": [{"role": "user"}], "answer": 1}, "without `role` and `content`"),
        ({"prompt": [{"role": "system", "content": "x"}], "answer": 1}, "no message of the user"),
        ({"prompt": "a"}, "neither `answer` nor `reward_model.ground_truth`"),
        ({"prompt": "a", "answer": ""}, "`answer` is empty"),
        ({"prompt": "a", "answer": True}, "`answer` is a bool"),
        ({"prompt": "a", "reward_model": {"ground_truth": ["x"]}}, "ground_truth` is a list"),
        ({"prompt": "a", "answer": "<answer>1"}, "holds a tag"),
        ({"prompt": "0 plus 1?", "answer": 7}, "a.jsonl:2: the same prompt has another answer"),
    ],
)
def test_broken_rows_are_named_by_line(tmp_path, row, message):
    path = write(tmp_path / "a.jsonl", [plain(1)[0], row, *plain(9, start=1)])
    with pytest.raises(SpecError, match="SL0123") as caught:
        build_task({"type": "rows", "path": path})
    assert message in str(caught.value)


def test_many_broken_rows_are_counted(tmp_path):
    path = write(tmp_path / "a.jsonl", ["{"] * 9)
    with pytest.raises(SpecError) as caught:
        build_task({"type": "rows", "path": path})
    assert len(str(caught.value).splitlines()) == 6
    assert "4 more rows are broken" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "SL0122 .*holds no rows"),
        (b"\n \n", "SL0122"),
        (b"\xff\xfe\x00", "SL0121 .*not UTF-8"),
        (b'{"prompt": "a", "answer": 1}\n', "SL0124 .*too few"),
    ],
)
def test_files_that_cannot_serve(tmp_path, content, message):
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    with pytest.raises(SpecError, match=message):
        build_task({"type": "rows", "path": str(path)})


def test_a_missing_file_or_path(tmp_path):
    with pytest.raises(SpecError, match=r"SL0121 .*nowhere\.jsonl: cannot be read: No such file"):
        build_task({"type": "rows", "path": str(tmp_path / "nowhere.jsonl")})
    with pytest.raises(SpecError, match="task: path"):
        build_task({"type": "rows"})


def test_limit_blank_lines_byte_order_mark_and_repeats(tmp_path):
    path = tmp_path / "a.jsonl"
    lines = [json.dumps(row) for row in [*plain(6), plain(1)[0]]]
    path.write_text("\n\n".join(lines) + "\n", encoding="utf-8-sig")
    task = build_task({"type": "rows", "path": str(path)})
    assert sum(len(task.prompts(split)) for split in Split) == 6
    limited = build_task({"type": "rows", "path": str(path), "limit": 4})
    assert sum(len(limited.prompts(split)) for split in Split) == 4


def test_rows_do_not_depend_on_the_hash_seed(tmp_path):
    path = write(tmp_path / "a.jsonl", plain(50))
    assert check_hash_seeds({"type": "rows", "path": path}).passed
