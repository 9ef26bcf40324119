# SPDX-License-Identifier: MIT
"""The site of these documents: `make docs` builds it into build/docs, a test does so with warnings as errors.

Nothing of the site is asked from another host: the theme brings its fonts and scripts, the search runs in the browser.
"""

import gc

from agent import __version__

# Documents are trees of many small objects and none is garbage: looking for it takes a quarter of a build.
gc.disable()

project = "Waldur Site Cluster"
author = "Waldur Site Cluster contributors"
copyright = "Waldur Site Cluster contributors, MIT licence"
version = release = __version__

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "index"
nitpicky = True
# Pages link to headings of each other as GitHub names them.
myst_heading_anchors = 5
# `1.` in a cell of a table and `--` of an option stay what they are.
smartquotes = False
highlight_language = "none"

html_theme = "furo"
html_title = f"{project} {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {"footer_icons": []}
