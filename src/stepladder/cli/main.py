"""The command `stepladder`: verbs by name, each imported when it is called, and one error door.

Only click and the standard library are imported here, so that `--help` is quick.
"""

from __future__ import annotations

import importlib
import logging
import sys
import traceback
from collections.abc import Mapping, Sequence
from difflib import get_close_matches

import click

from stepladder import __version__
from stepladder.cli.output import INTERNAL, INTERRUPTED, OK, note, print_error
from stepladder.core.errors import LabError

VERBS: Mapping[str, tuple[str, str]] = {
    "rehearse": (
        "stepladder.cli.study_cmds:rehearse",
        "Climb a small ladder on this machine and say GO or NO-GO. Begin here.",
    ),
    "plan": ("stepladder.cli.study_cmds:plan", "Show what a study would run; write nothing."),
    "run": ("stepladder.cli.study_cmds:run", "Run a study, or go on with one, to its verdict."),
    "train": ("stepladder.cli.train_cmd:train", "Train one policy and score it before and after."),
    "status": ("stepladder.cli.run_cmds:status", "Show how far a study is."),
    "stop": ("stepladder.cli.run_cmds:stop", "Ask a running study to end; it can go on later."),
    "curves": ("stepladder.cli.result_cmds:curves", "Print the response curves of a study."),
    "report": ("stepladder.cli.result_cmds:report", "Write and print the report of a study."),
    "export": ("stepladder.cli.export_cmd:export", "Write a run's policy as a model folder."),
    "tasks": ("stepladder.cli.task_cmds:tasks", "List, show and audit tasks."),
    "doctor": ("stepladder.cli.doctor_cmd:doctor", "Check this machine and say how to mend it."),
}
"""Verb -> where it stands and its line in the help."""


class LazyGroup(click.Group):
    """A group whose verbs are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  (click's signature)
        """Return the verbs in the order in which one meets them."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import and return a verb; None when there is no such verb."""
        if cmd_name not in VERBS:
            return None
        module, _, attribute = VERBS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command), f"{module}:{attribute} is not a command"
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb, or name the one that was probably meant."""
        close = [] if args[0] in VERBS else get_close_matches(args[0], VERBS, n=1)
        if close:
            ctx.fail(f"no such verb {args[0]!r}. Did you mean {close[0]!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the verbs without importing them."""
        with formatter.section("Verbs"):
            formatter.write_dl([(name, text) for name, (_, text) in VERBS.items()])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="\b\nBegin with:  stepladder rehearse\nThen look at: runs/rehearsal/report/report.html",
)
@click.version_option(__version__, prog_name="stepladder")
@click.option(
    "--lang",
    type=click.Choice(["en", "zh"]),
    help="Language of reports; otherwise by LC_ALL or LANG.",
)
@click.option("--debug", is_flag=True, help="Show tracebacks and the log.")
@click.pass_context
def cli(ctx: click.Context, lang: str | None, debug: bool) -> None:
    """Know how an RL post-training run will scale before paying for it."""
    ctx.obj = {"lang": lang}
    level = logging.DEBUG if debug else logging.WARNING
    logging.basicConfig(
        level=level, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s"
    )


def run_command(arguments: Sequence[str]) -> int:
    """Carry out one command line and return its exit code."""
    debug = "--debug" in arguments
    words = [word for word in arguments if word != "--debug"]
    try:
        code = cli.main(
            args=(["--debug"] if debug else []) + words,
            prog_name="stepladder",
            standalone_mode=False,
        )
        return code if isinstance(code, int) else OK
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except SystemExit as error:
        return (
            error.code if isinstance(error.code, int) else (OK if error.code is None else INTERNAL)
        )
    except (KeyboardInterrupt, click.Abort):
        note("interrupted; the same command goes on")
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return OK
    except LabError as error:
        if debug:
            traceback.print_exc()
        print_error(error)
        return error.exit_code
    except Exception as error:  # noqa: BLE001  (the CLI's top)
        if debug:
            traceback.print_exc()
        note(f"error: SL0001 internal: {type(error).__name__}: {error} (--debug shows where)")
        return INTERNAL


def main() -> None:
    """Entry point of the console script."""
    sys.exit(run_command(sys.argv[1:]))
