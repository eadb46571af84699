"""One declaration of an option: a field of a frozen dataclass.

    @dataclass(frozen=True)
    class SolveQuestion(TaskOptions):                              # the keywords of a function
        chunks: int = option("--chunks", type=Positive(), help="Chunks of each part of the data.")

    @function(SolveQuestion)
    def solve(question: SolveQuestion) -> Verdict: ...             # synth.solve(machine, name, chunks=6, ...)

    @dataclass(frozen=True)
    class Solve(Output, SolveQuestion): ...                        # with what the command line has beside them

    @command(Solve)
    def solve_command(options: Solve) -> None: ...                 # synth solve --topo NAME --chunks 6 ...

From the fields come click's parameters, the signature of the Python function and the list of parameters in its
docstring. A field without a flag is a keyword of the function alone.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, field, fields
from functools import wraps
from typing import Any, ParamSpec, Protocol, TypeVar

import click

from synth.commands.framework.output import QUIET, check_writable
from synth.commands.framework.types import Duration, Positive
from synth.commands.root import CONTEXT
from synth.errors import ArgumentError
from synth.model.frontier import StepCount

Given = ParamSpec("Given")
Value = TypeVar("Value")
Result = TypeVar("Result")


def option(*flags: str, default: Any = MISSING, help: str = "", doc: str = "", **attributes: Any) -> Any:
    """Return a field that is an option.

    `flags`: those of the command line, or the name of its argument; none for a keyword of the Python function alone.
    `default`: of both; missing for what must be given. `help`: for both, unless `doc` says it otherwise for
    Python. `attributes`: further ones of click's Option or Argument, such as type and metavar.
    """
    what = {"flags": flags, "help": help, "doc": doc or help, "click": attributes}
    return field(default=default, metadata=what)


def part(kind: Callable[..., Value], options: Any, /, **others: Any) -> Value:
    """Return a value of the dataclass `kind` whose fields are those of `options` with the same names, and `others`."""
    same = {one.name: getattr(options, one.name) for one in fields(kind) if hasattr(options, one.name)}  # type: ignore[arg-type]
    return kind(**same | others)


def flags_not_default(options: Any, *names: str) -> list[str]:
    """Return the flags of those of these fields whose values are not the defaults."""
    known = {one.name: one for one in fields(options)}
    found = []
    for name in names:
        if getattr(options, name) != known[name].default:
            flags = known[name].metadata["flags"] or (f"--{name.replace('_', '-')}",)
            found.append(flags[0].partition("/")[0])
    return found


# Python -----------------------------------------------------------------------------------------------------------


class Function(Protocol[Given, Result]):
    """A function of the Python API: called with keywords, or by `of` with one value of its options."""

    __name__: str

    def __call__(self, *args: Given.args, **kwargs: Given.kwargs) -> Result:
        """Make the value of the options, and call the function with it."""
        ...

    of: Callable[[Any], Result]


def function(
    options: Callable[Given, Value], rest: str = ""
) -> Callable[[Callable[[Value], Result]], Function[Given, Result]]:
    """Make a function of one value of `options` a function of keywords, with signature and docstring as these say.

    It raises ArgumentError, one sentence, for an argument of another type than its option has. `rest`: the field that
    gets keywords of other names, as a dictionary.
    """

    def decorate(body: Callable[[Any], Any]) -> Any:
        # The signature is that of the dataclass, with what `rest` collects at the end.
        known = {one.name: one for one in fields(options)}  # type: ignore[arg-type]
        result = inspect.signature(body).return_annotation
        parameters = list(inspect.signature(options).parameters.values())
        if rest:
            parameters = [one for one in parameters if one.name != rest]
            parameters.append(inspect.Parameter(rest, inspect.Parameter.VAR_KEYWORD, annotation="object"))
        signature = inspect.Signature(parameters, return_annotation=result)

        @wraps(body)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                given = signature.bind(*args, **kwargs).arguments
            except TypeError as error:
                raise ArgumentError(f"{body.__name__}() {error}") from None
            return body(options(**{name: _checked(known[name], value) for name, value in given.items()}))  # type: ignore[call-arg]

        call.__signature__ = signature  # type: ignore[attr-defined]
        call.__doc__ = _documented(inspect.getdoc(body) or "", [known[one.name] for one in parameters])
        call.of = body  # type: ignore[attr-defined]
        return call

    return decorate


def _checked(one: Field, value: Any) -> Any:
    """Return a whole number as Python's, a choice in lower case, and other values as they are."""
    # The types of the command line check the values of Python, too.
    kind = one.metadata["click"].get("type")
    if value is None or isinstance(value, StepCount) or "multiple" in one.metadata["click"]:
        return value
    if isinstance(kind, Positive | click.IntRange) or kind is int:
        least = getattr(kind, "min", None if kind is int else 1)
        if hasattr(value, "__index__") and (least is None or value >= least):
            return value.__index__()
        more = "" if least is None else f" >= {least}"
        raise ArgumentError(f"{one.name}: {value!r:.60} is not a whole number{more}")
    if isinstance(kind, Duration):
        from synth.solvers import deadline

        deadline.Deadline.after(value)  # which refuses what is no number of seconds
    if isinstance(kind, click.Choice):
        names = {name.lower(): name for name in kind.choices}
        if str(value).lower() not in names:
            raise ArgumentError(f"unknown {one.name} {value!r:.60}; there are {', '.join(kind.choices)}")
        return names[str(value).lower()]
    for named, plain in (("str", str), ("bool", bool)):
        if one.type == named and not isinstance(value, plain):
            raise ArgumentError(f"{one.name}: {value!r:.60} is not {'a text' if plain is str else 'True or False'}")
    return value


def _documented(doc: str, declared_fields: Iterable[Field]) -> str:
    """Return a docstring with the section "Parameters" before "Returns"."""
    head, mark, rest = doc.partition("\n\nReturns\n")
    rows = []
    for one in declared_fields:
        text = f"{one.name} : {one.metadata['doc']}"
        rows.append(textwrap.fill(text, 116, subsequent_indent="    ", break_on_hyphens=False))
    return "\n".join((f"{head}\n\nParameters\n----------", *rows)) + mark + rest


# The command line -------------------------------------------------------------------------------------------------


def command(options: Callable[..., Value], brief: str = "") -> Callable[[Callable], click.Command]:
    """Make a function of one value of `options` a command, whose help is the function's docstring.

    `brief`: one line for the help of its group, where that does not know it.
    """

    def decorate(body: Callable[[Value], Any]) -> click.Command:
        names, made, absent = {}, [], {}  # of fields; of click; keywords of the function that the command gives itself
        outputs = []  # fields of files that the command writes
        for one in fields(options):  # type: ignore[arg-type]
            flags, attributes = one.metadata["flags"], dict(one.metadata["click"])
            if not flags:
                if one.default is MISSING:
                    absent[one.name] = None
                continue
            if one.default is not MISSING:
                attributes.setdefault("default", one.default)
            if flags[0].startswith("-"):
                if isinstance(one.default, bool) and "type" not in attributes:
                    attributes["is_flag"] = True
                attributes.setdefault("required", one.default is MISSING)
                made.append(click.Option(flags, help=one.metadata["help"], **attributes))
            else:
                made.append(click.Argument(flags, **attributes))
            names[made[-1].name] = one.name
            if "-o" in flags and "DIR" not in attributes["metavar"]:
                outputs.append(one.name)

        def run(**given: Any) -> Any:
            token = QUIET.set(given.get("quiet", False))
            try:
                value = options(**absent, **{names[key]: value for key, value in given.items()})
                check_writable(*(getattr(value, name) for name in outputs))  # before anything is computed
                return body(value)
            finally:
                QUIET.reset(token)

        # The help is the docstring, so that it is written once.
        called = body.__name__.removesuffix("_command")
        made_of = {"params": made, "help": body.__doc__, "short_help": brief or None, "context_settings": CONTEXT}
        return click.Command(called, callback=run, **made_of)

    return decorate
