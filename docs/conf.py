"""Settings of the documentation site: ``make docs`` builds it into build/docs, without network use.

The source folder is the repository's, so that pages can link to measurements and examples as on a code host.
"""

from importlib.metadata import version as installed_version

project = "synth"
author = "The synth developers"
project_copyright = "The synth developers"
version = release = installed_version("ccl-synth")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_click", "sphinx_copybutton"]
root_doc = "docs/index"
include_patterns = ["docs/**.md", "bench/results/*.md", "CHANGELOG.md"]

myst_heading_anchors = 4
copybutton_prompt_text = "$ "
autodoc_typehints = "signature"

html_theme = "furo"
html_title = f"synth {release}"
html_copy_source = False
html_show_sphinx = False
html_extra_path = ["site"]  # index.html, which leads to the first page
