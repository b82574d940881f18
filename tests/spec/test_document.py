"""The generated reference pages."""

from pathlib import Path

import pytest
from pydantic import BaseModel

from stepladder.core.metrics import METRICS
from stepladder.spec.document import COMMAND, main, metrics_page, pages, settings_page, type_text
from stepladder.spec.explain import known_paths, members_of
from stepladder.spec.run import RunSpec
from stepladder.spec.study import StudySpec

REFERENCE = Path(__file__).parents[2] / "docs/reference"


@pytest.mark.parametrize("name", pages())
def test_committed_page_is_the_generated_one(name):
    assert (REFERENCE / name).read_text(encoding="utf-8") == pages()[name], f"run: {COMMAND}"


def test_every_setting_and_metric_is_on_its_page():
    settings, metrics = settings_page(), metrics_page()
    study = [path for path in known_paths(StudySpec) if not path.startswith("base.")]
    assert [path for path in (*known_paths(RunSpec), *study) if f"`{path}`" not in settings] == []
    assert [name for name in METRICS if f"| `{name}` |" not in metrics] == []


def sections(model: type[BaseModel]):
    yield model
    for field in model.model_fields.values():
        for member in members_of(field.annotation):
            yield from sections(member)


def test_every_setting_has_a_meaning():
    for model in sections(StudySpec):
        silent = [name for name, field in model.model_fields.items() if not field.description]
        assert not silent, f"{model.__name__}: {silent}"


def test_an_algorithm_lists_what_it_adds_or_has_otherwise():
    page = settings_page()
    shared, rest = page.split("#### grpo\n")
    assert "| `algorithm.clip_low` | number, > 0 | `0.2` |" in shared
    cispo = rest.split("#### cispo\n")[1].split("####")[0]
    assert "| `algorithm.clip_low` | number, > 0 | `1.0` |" in cispo
    assert "algorithm.importance_cap" not in cispo
    assert "As for `grpo`:" in cispo
    rloo = rest.split("#### rloo\n")[1].split("####")[0]
    assert '| `"leave_one_out"` |' in rloo


def test_types_are_written_in_words():
    assert type_text(int | None) == "whole number or null"
    assert type_text(tuple[str, ...]) == "list of text"


def test_main_writes_the_pages(tmp_path):
    main(tmp_path / "new")
    assert {path.name for path in (tmp_path / "new").iterdir()} == set(pages())
