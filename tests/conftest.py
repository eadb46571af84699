"""Options of the test-suite: `--update-golden` writes the golden files anew instead of comparing with them."""

from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="write golden files anew; look at the diff before committing")


@pytest.fixture
def golden(request):
    """`golden(name, text)`: `text` is what tests/golden/NAME holds; a missing file fails."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        assert path.is_file(), f"no golden file {path.name}; run pytest --update-golden and look at it"
        assert text == path.read_text()

    return compare
