"""The three doors of a registry."""

import sys
from collections.abc import Callable
from importlib import metadata

import pytest

from stepladder.core.errors import PluginError, SpecError
from stepladder.core.registry import Registry


def make_registry() -> Registry[Callable[..., object]]:
    return Registry("tasks", {"counter": "collections:Counter", "broken": "no_such_module:x"})


def test_built_in_name_is_imported_when_asked():
    assert make_registry().resolve({"type": "counter"}, "task") is __import__("collections").Counter


def test_dotted_path_is_found_beside_the_study(tmp_path, monkeypatch):
    (tmp_path / "beside_the_study.py").write_text("class Inner:\n    thing = 7\n")
    before = list(sys.path)
    monkeypatch.delitem(sys.modules, "beside_the_study", raising=False)
    found = make_registry().resolve({"use": "beside_the_study:Inner.thing"}, "task", tmp_path)
    monkeypatch.delitem(sys.modules, "beside_the_study", raising=False)
    assert found == 7
    assert sys.path == before


def test_entry_point_is_found(monkeypatch):
    entry = metadata.EntryPoint("published", "collections:OrderedDict", "stepladder.tasks")

    def entry_points(*, group, name=None):
        fits = group == entry.group and name in (None, entry.name)
        return metadata.EntryPoints([entry] if fits else [])

    monkeypatch.setattr(metadata, "entry_points", entry_points)
    registry = make_registry()
    assert "published" in registry.names()
    assert registry.get("published") is __import__("collections").OrderedDict


def test_registered_name_wins_over_the_built_in():
    registry = make_registry()
    mine = registry.register("counter")(lambda: 1)
    assert registry.get("counter") is mine


def test_unknown_name_suggests_the_nearest():
    with pytest.raises(SpecError, match=r"task\.type: unknown task 'cuonter' .*'counter'"):
        make_registry().resolve({"type": "cuonter"}, "task")


def test_neither_key_lists_what_there_is():
    with pytest.raises(SpecError, match=r"needs a `type` or `use` .*counter"):
        make_registry().resolve({}, "task")


@pytest.mark.parametrize(
    ("mapping", "door"),
    [
        ({"type": "broken"}, "built-in name"),
        ({"use": "collections:Nothing"}, "dotted path"),
        ({"use": "no_such_module:x"}, "dotted path"),
    ],
)
def test_code_that_cannot_be_loaded_names_its_door(mapping, door):
    with pytest.raises(PluginError, match=door):
        make_registry().resolve(mapping, "task")
