"""The command line as tests call it."""

from click.testing import CliRunner, Result

from synth.commands import root


def synth(*words: object, code: int = 0) -> Result:
    """Return the outcome of `synth WORDS`, split at blanks, which must end with `code` and without a traceback."""
    outcome = CliRunner().invoke(root, " ".join(map(str, words)).split())
    assert outcome.exit_code == code, (outcome.exit_code, outcome.stdout, outcome.stderr, outcome.exception)
    assert "Traceback" not in outcome.stderr
    return outcome
