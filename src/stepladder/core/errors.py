"""The error family: every error a user can meet says what, where, why and how to mend it.

Codes are stable. `exit_code` is what the command returns; `boundary` is the one place that turns a
stranger's exception (task, reward, monitor, sink) into ours.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import NoReturn


class LabError(Exception):
    """Carry a stable code, what went wrong, where, and the fix."""

    exit_code = 1

    def __init__(self, code: str, what: str, where: str = "", fix: str = "") -> None:
        super().__init__(code, what, where, fix)
        self.code = code
        self.what = what
        self.where = where
        self.fix = fix

    def __str__(self) -> str:
        where = f"{self.where}: " if self.where else ""
        fix = f" ({self.fix})" if self.fix else ""
        return f"{self.code} {where}{self.what}{fix}"


class SpecError(LabError, ValueError):
    """Report a setting that cannot be accepted."""

    exit_code = 2


class PlanError(LabError, ValueError):
    """Report a plan that cannot be carried out as written."""

    exit_code = 2


class StoreError(LabError, OSError):
    """Report a run or study folder that cannot be read or written."""

    exit_code = 2

    # OSError formats two or more arguments as errno and message; ours must win.
    __str__ = LabError.__str__


class EnvironmentProblem(LabError, RuntimeError):  # noqa: N818  (design.md 4.7 names it)
    """Report something missing from the machine, such as an extra."""

    exit_code = 3


class PluginError(LabError, RuntimeError):
    """Report a fault in a task, reward, monitor or sink, naming it and the door it came by."""

    exit_code = 2


def missing_extra(package: str, extra: str) -> EnvironmentProblem:
    """Return the error for a package that comes with one of our extras."""
    return EnvironmentProblem(
        "SL0301",
        f"the package {package!r} is not installed",
        fix=f"pip install 'stepladder[{extra}]'",
    )


def reraise_from(error: BaseException, what: str, code: str = "SL0501") -> NoReturn:
    """Raise `error` again as a PluginError that names its boundary."""
    kind = type(error).__name__
    raise PluginError(code, f"{what} raised {kind}: {error}", where=what) from error


@contextmanager
def boundary(what: str) -> Generator[None]:
    """Turn any exception of foreign code into a PluginError that names `what`.

    Raises
        PluginError: for every Exception; KeyboardInterrupt and SystemExit pass through.
    """
    try:
        yield
    except LabError:
        raise
    except Exception as error:  # noqa: BLE001  (the boundary is where foreign faults end)
        reraise_from(error, what)
