"""What Sphinx makes of the documents: the site, and the manual pages of the C API. docs/build.sh runs it.

The environment has QCCL_VERSION, QCCL_XML (what Doxygen has written of the headers) and, for the site, QCCL_PACKAGE (the folder
of the Python package). Python's own docstrings have the layout of comment_blocks.py; this file turns them into reStructuredText.
"""
import importlib.util
import json
import os
import pathlib
import re
import sys

from sphinx import addnodes

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import python_docstrings  # noqa: E402

project = "QCCL"
author = "the authors of QCCL"
copyright = ""
today = "QCCL"  # manual pages say it where others have a date, which would differ from build to build
version = release = os.environ["QCCL_VERSION"]

extensions = ["breathe", "myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["README.md"]
breathe_projects = {"qccl": os.environ["QCCL_XML"]}
breathe_default_project = "qccl"
breathe_domain_by_extension = {"h": "c"}
primary_domain = "c"
smartquotes = False
highlight_language = "none"
myst_heading_anchors = 4
man_pages = json.loads(pathlib.Path(os.environ["QCCL_PAGES"]).read_text()) if "QCCL_PAGES" in os.environ else []

# Types of C, MPI and Python, which have no page here.
nitpick_ignore = [("c:identifier", name) for name in ("size_t", "int32_t", "uint32_t", "int64_t", "uint64_t", "MPI_Comm",
                                                       "qcclColl", "qcclRequest", "qcclComm", "qcclCodec", "qcclState",
                                                       "qcclLayerCodecs")]
nitpick_ignore_regex = [("py:.*", ".*")]

autodoc_member_order = "bysource"
autodoc_mock_imports = [name for name in ("numpy", "torch") if not importlib.util.find_spec(name)]
if "QCCL_PACKAGE" in os.environ:
    sys.path.insert(0, os.environ["QCCL_PACKAGE"])

html_theme = next((name for name in ("furo", "sphinx_rtd_theme") if importlib.util.find_spec(name)), "alabaster")
html_title = f"QCCL {version}"
html_copy_source = False
html_show_copyright = False

# ---- Pages

# Pages whose text is a file elsewhere in the tree.
ELSEWHERE = {"reference/wire": "lib/codec/WIRE.md", "contributing": "CONTRIBUTING.md", "changes": "CHANGES.md"}
LINK = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+[^)#]*)(#[^)]*)?\)")


def link_to_pages(app, page, source):
    """Links to files outside of this folder: to the page that shows the file, else only the words."""
    folder = (HERE / page).parent

    def replace(found):
        file = (folder / found[2]).resolve().relative_to(HERE.parent).as_posix()
        target = next((name for name, shown in ELSEWHERE.items() if shown == file), None)
        words = found[1]
        if target is None:
            return words if words.startswith("`") else f"`{file}`" if words in file else f"{words} (`{file}`)"
        return f"[{words}]({os.path.relpath(HERE / target, folder)}.md{found[3] or ''})"
    source[0] = LINK.sub(replace, source[0])


def leave_out_group_names(app, doctree):
    """Breathe writes "group qccl_codecs" above the text of a section."""
    for signature in list(doctree.findall(addnodes.desc_signature)):
        if signature.astext().startswith("group "):
            signature.parent.replace_self(signature.parent[-1].children)


def setup(app):
    app.connect("source-read", link_to_pages)
    app.connect("doctree-read", leave_out_group_names)
    app.connect("autodoc-process-docstring", python_docstrings.process)
