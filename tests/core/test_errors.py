"""The error family."""

import pickle

import pytest

from stepladder.core.errors import (
    EnvironmentProblem,
    LabError,
    PlanError,
    PluginError,
    SpecError,
    StoreError,
    boundary,
    missing_extra,
)
from stepladder.spec.explain import SpecErrors

KINDS = [LabError, SpecError, PlanError, StoreError, EnvironmentProblem, PluginError]


@pytest.mark.parametrize("kind", KINDS)
def test_errors_survive_pickling(kind):
    error = kind("SL0999", "went wrong", "a.toml: lr", "mend it")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert str(copy) == str(error) == "SL0999 a.toml: lr: went wrong (mend it)"
    assert (copy.code, copy.what, copy.where, copy.fix) == (
        "SL0999",
        "went wrong",
        "a.toml: lr",
        "mend it",
    )


def test_several_errors_survive_pickling():
    errors = SpecErrors([SpecError("SL0101", "one"), SpecError("SL0102", "two")])
    copy = pickle.loads(pickle.dumps(errors))
    assert str(copy).splitlines() == ["SL0101 one", "SL0102 two"]


@pytest.mark.parametrize(
    ("kind", "parent", "exit_code"),
    [
        (LabError, Exception, 1),
        (SpecError, ValueError, 2),
        (PlanError, ValueError, 2),
        (StoreError, OSError, 2),
        (EnvironmentProblem, RuntimeError, 3),
        (PluginError, RuntimeError, 2),
    ],
)
def test_errors_are_standard_errors_with_an_exit_code(kind, parent, exit_code):
    assert issubclass(kind, LabError) and issubclass(kind, parent)
    assert kind("SL0999", "x").exit_code == exit_code


def test_boundary_names_what_failed_and_keeps_the_cause():
    says = "reward 'strict' raised KeyError"
    with pytest.raises(PluginError, match=says) as caught, boundary("reward 'strict'"):
        raise KeyError("gold")
    assert isinstance(caught.value.__cause__, KeyError)


def test_boundary_lets_our_errors_and_interrupts_pass():
    with pytest.raises(SpecError), boundary("task"):
        raise SpecError("SL0101", "x")
    with pytest.raises(KeyboardInterrupt), boundary("task"):
        raise KeyboardInterrupt


def test_missing_extra_says_the_pip_line():
    assert "pip install 'stepladder[train]'" in str(missing_extra("torch", "train"))
