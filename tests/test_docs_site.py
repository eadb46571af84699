"""The documentation site builds without a warning, and no link of its pages leads nowhere."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import click
import pytest

from synth.commands.root import root

ROOT = Path(__file__).parent.parent


class _Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.links, self.names = [], {""}

    def handle_starttag(self, tag, attributes):
        for key, value in attributes:
            if key in ("href", "src") and value:
                self.links.append(value)
            if key in ("id", "name") and value:
                self.names.add(value)


def _read(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


@pytest.mark.slow
def test_site_builds_and_its_links_lead_somewhere(tmp_path):
    pytest.importorskip("sphinx", reason="Sphinx is not installed; run: pip install 'ccl-synth[docs]'")
    options = ["--quiet", "--fail-on-warning", "--keep-going", "-d", str(tmp_path / "doctrees"), "-c", "docs"]
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, ".", str(tmp_path / "site")],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    pages = {path.resolve(): _read(path) for path in (tmp_path / "site").rglob("*.html")}
    assert (tmp_path / "site" / "index.html").resolve() in pages
    assert "synth.frontier" in pages[(tmp_path / "site/docs/python.html").resolve()].names
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert target.exists(), f"{path.name} links to {link}"
            if target in pages and parts.fragment:
                assert unquote(parts.fragment) in pages[target].names, f"{path.name} links to {link}"


def test_every_page_is_in_the_contents():
    contents = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    guides = (ROOT / "docs" / "howto" / "index.md").read_text(encoding="utf-8")
    for path in (ROOT / "docs").rglob("*.md"):
        name = path.relative_to(ROOT / "docs").with_suffix("").as_posix()
        if name != "index" and path.parent.name != "img":
            assert f"\n{name}\n" in contents or f"\n{path.stem}\n" in guides, name


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as code hosts and the site make them."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize(
    "path", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda path: path.stem
)
def test_links_lead_to_files_and_headings(path):
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        page = (path.parent / name).resolve() if name else path
        assert page.exists(), target
        assert not anchor or anchor in anchors(page), target


def test_every_command_is_in_the_table_of_the_command_line():
    table = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8").partition("\n## ")[0]
    for name in root.lazy:
        assert f"`synth {name}" in table, name


def options() -> set[str]:
    """The options of all commands and of those below them."""
    found, todo = set(), [root]
    while todo:
        command = todo.pop()
        for parameter in command.params:
            found |= {*parameter.opts, *parameter.secondary_opts}
        if isinstance(command, click.Group):
            context = click.Context(command)
            todo += [command.get_command(context, name) for name in command.list_commands(context)]
    return found


@pytest.mark.parametrize(
    "path", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda path: path.stem
)
def test_options_that_a_page_names_exist(path):
    text = path.read_text(encoding="utf-8")
    named = set(re.findall(r"`(--[a-z][a-z-]+)", text))
    for line in re.findall(r"^(?:\$ )?synth .*$|`synth [^`]*`", text, re.MULTILINE):
        named |= set(re.findall(r" (--[a-z][a-z-]+)", line.partition("  #")[0]))
    assert named <= options(), named - options()
