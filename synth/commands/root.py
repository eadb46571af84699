"""The group of all commands: loads them lazily, and turns every error into one line and its exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from synth.errors import InfeasibleError, SynthError, UsageError, suggest

UNDECIDED, INTERRUPTED = 4, 130
CONFIG = Path("synth.toml")  # in the working directory
CONTEXT: dict[str, Any] = {
    "help_option_names": ["-h", "--help"],
    "auto_envvar_prefix": "SYNTH",
    "max_content_width": 110,
}


class Commands(click.Group):
    """A group whose commands are imported when they are named, and which knows the nearest name of one that does not
    exist.

    `lazy` says where each command is, `briefs` what it does, in a line: a group with briefs shows its help without
    importing a command.
    """

    def __init__(
        self, *args: Any, lazy: Mapping[str, str], briefs: Mapping[str, str] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = lazy
        self.briefs = briefs

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order they were declared: the main job first."""
        return list(self.lazy)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """As click's, from the briefs where there are any."""
        if self.briefs is None:
            super().format_commands(ctx, formatter)
        else:
            with formatter.section("Commands"):
                formatter.write_dl([(name, self.briefs[name]) for name in self.lazy])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command called `cmd_name`, in any case."""
        target = self.lazy.get(cmd_name.lower())
        if target is None:
            return None
        module, _, attr = target.partition(":")
        return getattr(import_module(module), attr)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's, with "did you mean"."""
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            hint = f"`{ctx.command_path} -h` shows them all"
            raise UsageError(suggest("command", args[0], list(self.lazy), hint))
        return super().resolve_command(ctx, args)


class Root(Commands):
    """The outermost group: exit codes and error lines."""

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, *_: Any, **extra: Any) -> Any:
        """Runs a command line and exits with its code. Never shows a traceback unless SYNTH_DEBUG is set."""
        extra["standalone_mode"] = False
        for stream in ("stdout", "stderr"):
            if getattr(sys, stream) is None:  # closed by who started this: what is said there goes nowhere
                setattr(sys, stream, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))
        from synth.commands.framework.output import PlainStream

        # Whatever is printed in a command is escaped.
        given = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = map(PlainStream, given)
        try:
            code = _guarded(lambda: super(Root, self).main(args, prog_name or "synth", **extra))
        finally:
            sys.stdout, sys.stderr = given
        sys.exit(code)


def _guarded(run: Any) -> int:
    try:
        code = run()
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except (click.Abort, KeyboardInterrupt):
        return _say("interrupted", INTERRUPTED)
    except BrokenPipeError:
        # whoever read our output has gone; nothing is left to say, and the exit must not try to flush either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except click.UsageError as error:
        if (
            type(error).__name__ == "NoArgsIsHelpError"
        ):  # a group without a command (Click 8.2): its help, as -h prints it
            print(error.format_message(), file=sys.stderr)
            return error.exit_code
        _debug()
        hint = "" if error.ctx is None else f" (`{error.ctx.command_path} -h` shows how)"
        return _say(f"error: {' '.join(error.format_message().split()).rstrip('.')}{hint}", error.exit_code)
    except click.ClickException as error:
        _debug()
        return _say(f"error: {error.format_message()}", error.exit_code)
    except InfeasibleError as error:
        return _say(f"infeasible: {error}", error.exit_code)
    except SynthError as error:
        _debug()
        return _say(f"error: {error}", error.exit_code)
    except MemoryError:
        _debug()
        return _say("error: this process has no more memory; ask for fewer chunks, steps or ranks", UNDECIDED)
    except OSError as error:
        _debug()
        return _say(f"error: {error.filename or 'input/output'}: {error.strerror or error}", 1)
    except Exception as error:
        _debug()
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        return _say(
            f"error: internal error, {what}; please report it with what the same command prints under SYNTH_DEBUG=1", 1
        )


# Characters of a word, such as a value of the user's, that an error line quotes.
MAX_WORD = 120


def _say(text: str, code: int) -> int:
    from synth.commands.framework.output import printable

    # One line, of words that are not too long for it.
    words = []
    for word in text.split():
        words.append(word if len(word) <= MAX_WORD else f"{word[:MAX_WORD]}...")
    print("synth: " + printable(" ".join(words)), file=sys.stderr)
    return code


def _debug() -> None:
    if os.environ.get("SYNTH_DEBUG"):
        traceback.print_exc()


COMMANDS = {  # the main job first
    "build": "Build a folder of algorithms for a machine, in one command.",
    "pareto": "Find the frontier: least rounds per chunk at each number of steps.",
    "solve": "Decide whether C chunks, S steps and R rounds have a schedule.",
    "bound": "Print lower bounds and their certificates.",
    "verify": "Replay schedules and re-check certificates.",
    "compile": "Check and compile a program of the chunk language.",
    "algorithms": "List the library's algorithms, ranked on a machine.",
    "export": "Write files that runtimes load: MSCCL-IR, MSCCL++ plans, timelines.",
    "lint": "Report a program's faults, or prove that it has none.",
    "import": "Read another program's schedule, and replay it.",
    "audit": "Judge other programs' schedules against certified bounds.",
    "run": "Run a program, compare its outputs, print its time.",
    "show": "Print a program, or draw it.",
    "bench": "Time programs over sizes, with nccl-tests' columns.",
    "tune": "Choose an algorithm for each message size: a plan.",
    "explain": "Explain the optimal rate, or why a schedule is slower.",
    "allocations": "List the optimal rates of every allocation of a machine.",
    "catalog": "Keep algorithms of all machines in one file.",
    "torch": "Programs inside PyTorch jobs on this machine.",
    "report": "Write an HTML page: frontiers, schedules step by step, times, proofs.",
    "topo": "List, show, import, match and draw topologies.",
    "list": "List the names that options take, and missing libraries.",
}
# The folders of commands that are in one, and the files that are not called as their command.
FOLDERS = {
    "programs": ("compile", "algorithms", "export", "lint", "import", "audit", "run", "show", "bench"),
    "tuning": ("build", "tune"),
}
FILES = {"import": "import_", "catalog": "catalog.group", "torch": "torch.group", "list": "lists"}


def _place(name: str) -> str:
    folder = next((f"{folder}." for folder, names in FOLDERS.items() if name in names), "")
    return f"synth.commands.{folder}{FILES.get(name, name)}:{name}_command"


@click.command(
    cls=Root, name="synth", context_settings=CONTEXT, briefs=COMMANDS,
    lazy={name: _place(name) for name in COMMANDS},
)  # fmt: skip
@click.version_option(
    None, "-V", "--version", package_name="ccl-synth", prog_name="synth", message="%(prog)s %(version)s"
)
@click.pass_context
def root(ctx: click.Context) -> None:
    """Synthesizes collective-communication algorithms for a machine, with certificates of optimality.

    \b
    Example:
      synth pareto --topo dgx1 --coll allgather

    Every option can also be set as SYNTH_<OPTION> in the environment, or in synth.toml in the working directory.
    Exit codes: 0 done, 1 error, 2 usage, 3 proved infeasible, 4 undecided within the budget, 5 verification failed,
    130 interrupted.
    """
    if CONFIG.is_file():
        from synth.commands.framework.config import defaults

        ctx.default_map = defaults(CONFIG, root)
