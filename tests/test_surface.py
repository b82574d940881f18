"""The public surface is what was agreed: settings, verbs, canonical metrics, imports.

A change shows as a diff of surface.txt: `python tests/test_surface.py` rewrites it.
"""

import importlib
from pathlib import Path

import click

import stepladder
from stepladder.cli import main as command
from stepladder.core.metrics import METRICS
from stepladder.core.registry import Registry
from stepladder.spec.base import Spec
from stepladder.spec.explain import known_paths
from stepladder.spec.run import RunSpec
from stepladder.spec.study import StudySpec
from stepladder.tasks.registry import TASKS

SURFACE = Path(__file__).parent / "surface.txt"


def verbs(group=command.cli, prefix=""):
    """Yield `verb --options` of every command, groups opened."""
    context = click.Context(group)
    for name in group.list_commands(context):
        verb = group.get_command(context, name)
        if isinstance(verb, click.Group):
            yield from verbs(verb, f"{prefix}{name} ")
            continue
        options = sorted(option for item in verb.params for option in item.opts if option[0] == "-")
        arguments = [item.name.upper() for item in verb.params if isinstance(item, click.Argument)]
        yield " ".join([f"{prefix}{name}", *arguments, *options])


def task_settings(registry: Registry = TASKS):
    for name in registry.names():
        factory = registry.get(name)
        if isinstance(factory, type) and issubclass(factory, Spec):
            yield from (f"{name}.{path}" for path in known_paths(factory))


def sections():
    study = [path for path in known_paths(StudySpec) if not path.startswith("base.")]
    testing = importlib.import_module("stepladder.testing")
    return {
        "run settings": sorted(known_paths(RunSpec)),
        "study settings": sorted(study),
        "task settings": sorted(task_settings()),
        "verbs": sorted(verbs()),
        "metrics": sorted(METRICS),
        "imports from stepladder": sorted(stepladder.__all__),
        "imports from stepladder.testing": sorted(getattr(testing, "__all__", ())),
    }


def dump_surface():
    parts = [f"[{title}]\n" + "\n".join(lines) + "\n" for title, lines in sections().items()]
    return "\n".join(parts)


def test_surface_is_what_we_agreed():
    assert dump_surface() == SURFACE.read_text(encoding="utf-8"), (
        "the surface changed: if that is meant, run `python tests/test_surface.py` and look at the diff"
    )


if __name__ == "__main__":
    SURFACE.write_text(dump_surface(), encoding="utf-8")
