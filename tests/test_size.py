"""Files and functions stay small enough to read (design.md 4.10)."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAX_FILE_LINES, MAX_FUNCTION_LINES = 400, 60
EXCEPTIONS: dict[str, str] = {}
"""`path` or `path:function` -> why it may be longer."""
BANNED_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "manager"}
FOLDERS = ("src", "tests", "examples", "benchmarks")
FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


def named(path):
    return path.relative_to(ROOT).as_posix()


def functions(path):
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, kinds)]


@pytest.mark.parametrize("path", FILES, ids=named)
def test_file_and_functions_are_short(path):
    name = named(path)
    num_lines = len(path.read_text(encoding="utf-8").splitlines())
    assert num_lines <= MAX_FILE_LINES or name in EXCEPTIONS, f"{name}: {num_lines} lines"
    for node in functions(path):
        length = (node.end_lineno or node.lineno) - node.lineno + 1
        short = length <= MAX_FUNCTION_LINES or f"{name}:{node.name}" in EXCEPTIONS
        assert short, f"{name}:{node.name}: {length} lines"


@pytest.mark.parametrize("path", FILES, ids=named)
def test_names_say_what_is_inside(path):
    parts = {part.removesuffix(".py") for part in path.relative_to(ROOT).parts}
    assert not parts & BANNED_NAMES


def test_exceptions_are_still_needed():
    for entry, reason in EXCEPTIONS.items():
        assert reason, f"{entry} needs a reason"
        name, _, function = entry.partition(":")
        path = ROOT / name
        assert path.exists(), f"{entry} is gone: take it off the list"
        if function:
            assert any(node.name == function for node in functions(path)), entry
