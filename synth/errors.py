"""Every error a user can meet, and the exit code each one ends with.

A message is one line: the request, the fault, and a way to mend it.
"""

from __future__ import annotations

from collections.abc import Sequence


class SynthError(Exception):
    """Bad input or a failed operation. Exit code 1.

    All errors of this package are subclasses: UsageError, InfeasibleError, VerificationError, FormatError and others in
    `synth.errors`. The message is one line: the request, the fault, and a way to mend it.

    Examples
    --------
    >>> import synth
    >>> try:
    ...     synth.topology("dgx-9")
    ... except synth.SynthError as error:
    ...     print(type(error).__name__, error.exit_code)
    UsageError 2
    """

    exit_code = 1


class UsageError(SynthError):
    """A request without meaning: an unknown name, two options that exclude each other. Exit code 2."""

    exit_code = 2


class ArgumentError(UsageError, TypeError):
    """An argument of a function that has another name, or is of another type, than any it takes. Exit code 2."""


class TooManySendsError(UsageError):
    """A schedule of more sends than are written out, or made into a program; `sends` is their number. Exit code 2."""

    def __init__(self, sends: int, message: str) -> None:
        super().__init__(message)
        self.sends = sends


class FormatError(SynthError):
    """A file that cannot be read as what it claims to be. Exit code 1.

    ``place`` is a line number, a JSON path or whatever locates the fault inside ``file``.
    """

    def __init__(self, message: str, file: str | None = None, place: str | int | None = None) -> None:
        self.file, self.place = file, place
        where = ":".join(str(part) for part in (file, place) if part is not None)
        super().__init__(f"{where}: {message}" if where else message)


class MissingDependencyError(SynthError):
    """An optional library is absent; the message names the command that installs it. Exit code 1."""


class InfeasibleError(SynthError):
    """Proved: no schedule exists. ``certificate`` is the witness, when there is one. Exit code 3."""

    exit_code = 3

    def __init__(self, message: str, certificate: dict | None = None) -> None:
        super().__init__(message)
        self.certificate = certificate


class UndecidedError(SynthError):
    """The budget ran out before an answer. Says nothing about feasibility. Exit code 4."""

    exit_code = 4


class VerificationError(SynthError):
    """A schedule, certificate or frontier is wrong; ``place`` says where in the document. Exit code 5."""

    exit_code = 5

    def __init__(self, message: str, place: str | None = None) -> None:
        super().__init__(f"{place}: {message}" if place else message)
        self.place = place

    def within(self, place: str) -> VerificationError:
        """Return an error of the same class for an enclosing document.

        Its `place` is `place`; its message is `place`, a colon, and the old message.
        """
        return type(self)(str(self), place)


class UncheckedError(VerificationError):
    """A claim of a document that could not be checked: its proof file is not there, or it is too large. Exit code 4."""

    exit_code = 4


def malformed(error: Exception, what: str = "document") -> str:
    """Return the message for a document whose reading raised the Python exception `error`.

    It names `what` kind of document it is and the fault, in one line of at most 200 characters without Python's types.
    """
    match error:
        case KeyError():
            found = f"{error} is missing" if error.args and isinstance(error.args[0], str) else f"{error} names nothing"
        case IndexError():
            found = "a list is too short, or a number names nothing"
        case TypeError() | AttributeError():
            found = "a value is of the wrong kind (null, a number, text, a list or an object where another belongs)"
        case ValueError() if "unpack" in str(error) or "zip()" in str(error):  # Python's own words for it
            found = "a list is too short or too long"
        case _:
            found = str(error) or "it makes no sense"
    return f"malformed {what}: {found}"[:200]


def refused(construction: str, error: VerificationError) -> str:
    """Return the note of a frontier on a schedule of this program's own that its replay refused with `error`."""
    return f"a schedule by {construction!r} is left out, since its replay fails: {error}; please report this"


def unreadable(error: OSError) -> str:
    """Return why a file cannot be read: there is none, it is a folder, or the reason of the operating system."""
    match error:
        case FileNotFoundError():
            return "does not exist"
        case IsADirectoryError():
            return "is a folder; name a file in it"
    return f"cannot be read: {error.strerror or error}"


def json_kind(value: object) -> str:
    """Return JSON's name of the type of a value, with its article."""
    names = {
        dict: "an object",
        list: "a list",
        str: "text",
        bool: "true or false",
        int: "a number",
        float: "a number",
        type(None): "null",
    }
    return names.get(type(value), type(value).__name__)


def unknown(kind: str, name: str, known: Sequence[str], listed: str) -> str:
    """Return the message for an unknown `name`: up to three similar names of `known`, else the command that lists them.

    `kind`: the singular in the message, such as "topology". `listed`: the argument of `synth list`.
    """
    import difflib

    spelled: dict[str, str] = {}  # dgx-1 and dgx1 are two spellings of one name
    for near_name in difflib.get_close_matches(name.lower(), known, 9, 0.5):
        spelled.setdefault(near_name.replace("-", "").replace("_", ""), near_name)
    near = list(spelled.values())[:3]
    hint = f"did you mean {' or '.join(near)}?" if near else f"`synth list {listed}` shows them all"
    return f"unknown {kind} {name!r}; {hint}"


def suggest(kind: str, name: str, known: Sequence[str], otherwise: str) -> str:
    """``unknown command 'paretto'; did you mean pareto?``, or `otherwise` as the hint where nothing is near."""
    line, _, hint = unknown(kind, name, known, kind).partition("; ")
    return f"{line}; {hint if hint.startswith('did you mean') else otherwise}"
