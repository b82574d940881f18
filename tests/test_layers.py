"""The layers of design.md 4.2, as import-linter reads them from pyproject.toml."""

import re
from pathlib import Path

from importlinter import api, cli

ROOT = Path(__file__).parents[1]
IMPORT_OF_ENGINE = re.compile(r"^( *)(?:from|import) stepladder\.engine", re.MULTILINE)


def test_imports_go_down_only():
    contracts = api.read_configuration(str(ROOT / "pyproject.toml"))["contracts_options"]
    assert {contract["name"] for contract in contracts} == {"layers", "torch lives in the engine"}
    code = cli.lint_imports(config_filename=str(ROOT / "pyproject.toml"), cache_dir=None)
    assert code == cli.EXIT_STATUS_SUCCESS


def test_only_the_worker_names_the_engine_and_only_inside_a_function():
    for path in (ROOT / "src/stepladder").rglob("*.py"):
        inside = path.relative_to(ROOT / "src/stepladder")
        if inside.parts[0] in {"engine", "testing", "integrations"}:
            continue
        found = IMPORT_OF_ENGINE.findall(path.read_text(encoding="utf-8"))
        assert not found or inside.as_posix() == "launch/worker.py", f"{inside} imports the engine"
        assert all(indent for indent in found), f"{inside} imports the engine when it is loaded"
