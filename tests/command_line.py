"""The command line as tests call it."""

from click.testing import CliRunner, Result

from synth.cli import root


def synth(*words: object, code: int = 0) -> Result:
    """Return the outcome of `synth WORDS`, which must end with `code` and without a traceback.

    A single text is split at its blanks.
    """
    given = str(words[0]).split(" ") if len(words) == 1 else [str(word) for word in words]
    outcome = CliRunner().invoke(root, given)
    assert outcome.exit_code == code, (outcome.exit_code, outcome.stdout, outcome.stderr, outcome.exception)
    assert "Traceback" not in outcome.stderr
    return outcome
