"""How Sphinx makes the site from these pages and from the code: `make docs`, then open build/docs/index.html.

In: docs/, the docstrings, the parsers of the command line. Out: static pages. Holds: a link that leads nowhere, a name that is
documented nowhere or a page that nobody reaches is a warning, and warnings fail (tests/docs). Nothing is fetched: neither when
the site is made nor when it is read. Not covered: links to other sites.
"""

import pathlib
import sys

import dp_pipelines

sys.path.insert(0, str(pathlib.Path(__file__).parent))

project = "dp_pipelines"
version = release = dp_pipelines.__version__
copyright = "the authors of dp_pipelines; Apache 2.0"

extensions = [
    "job_file_keys",  # beside this file
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinxcontrib.programoutput",
]
myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
default_role = "code"  # a single backtick means code in our docstrings, as in Markdown
exclude_patterns = ["**/README.md"]

autodoc_default_options = {"members": True, "exclude-members": "model_config"}
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_class_signature = "separated"
napoleon_google_docstring = True
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = f"dp_pipelines {release}"
html_show_sphinx = False
html_static_path = ["static"]
html_css_files = ["wrap.css"]
# GitHub shows the same files, so that their fences must be its own: `sh` and `yaml` with `...` in it are no errors here.
# A property whose docstring begins with a word and a colon is taken for one with a type, `ref.python`.
suppress_warnings = ["misc.highlighting_failure", "ref.python"]
copybutton_exclude = ".linenos, .gp, .go"
