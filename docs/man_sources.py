"""Writes the sources of the manual pages of the C API: a page for each function, struct and list of values, and one for each
section of the header. Sphinx makes manual pages of them, with what Doxygen has read.

docs/build.sh runs it. It also writes pages.json, a row of conf.py's man_pages for each page, and links.json: the functions with a
config, which stand on the page of the function without.

usage: man_sources.py DOXYGEN_XML OUTPUT
"""
import json
import pathlib
import sys
import textwrap
import xml.etree.ElementTree as ElementTree

DIRECTIVES = {"define": "doxygendefine", "enum": "doxygenenum", "function": "doxygenfunction", "struct": "doxygenstruct",
              "typedef": "doxygentypedef"}
WIDTH = 84
HEADERS = {"qccl_from_mpi": "qccl/mpi.h"}


def words(element):
    """The text of an element of Doxygen's XML, without its markup."""
    return " ".join("".join(element.itertext()).split()) if element is not None else ""


def brief_of(element):
    """The first sentence of a description."""
    return words(element.find("detaileddescription/para")).partition(". ")[0].rstrip(".")


def underlined(title, line="="):
    return f"{title}\n{line * len(title)}\n"


class Member:
    """A function, enum or struct, with the file of XML that has it."""

    def __init__(self, kind, name, brief, declaration, group):
        self.kind, self.name, self.brief, self.declaration, self.group = kind, name, brief, declaration, group


def declaration_of(definition):
    """The lines of a function as C declares it."""
    text = f"{words(definition.find('type'))} {definition.findtext('name')}{definition.findtext('argsstring')};"
    return textwrap.wrap(text.removeprefix("static "), WIDTH, subsequent_indent="    ")


def read_group(path):
    """(name, title, members) of a section."""
    group = ElementTree.parse(path).getroot().find("compounddef")
    name, members = group.findtext("compoundname"), []
    for definition in group.iter("memberdef"):
        kind = definition.get("kind")
        declaration = declaration_of(definition) if kind == "function" else []
        members.append(Member(kind, definition.findtext("name"), brief_of(definition), declaration, name))
    for inner in group.iter("innerclass"):
        struct = ElementTree.parse(path.parent / f"{inner.get('refid')}.xml").getroot().find("compounddef")
        members.append(Member("struct", inner.text, brief_of(struct), [], name))
    return name, group.findtext("title"), members


def page_of(member, twin):
    """The source of a page. twin: the same function with a config, or None."""
    synopsis = [f"#include <{HEADERS.get(member.group, 'qccl/qccl.h')}>", ""]
    synopsis += [line for one in (member, twin) if one for line in one.declaration]
    lines = [underlined(member.name), underlined("Synopsis", "-"), ".. code-block:: c", "", *("   " + line for line in synopsis), "",
             underlined("Description", "-"), f".. {DIRECTIVES[member.kind]}:: {member.name}"]
    if member.kind == "struct":
        lines += ["   :members:", "   :undoc-members:"]
    if twin:
        lines += ["", f"``{twin.name}`` does the same, with settings of this call (``qcclCollConfig_t(3)``).", ""]
    return "\n".join([*lines, "", underlined("See also", "-"), f"``{member.group}(3)``, ``qccl(3)``", ""])


def is_named(member):
    """Has the member a name in C? Doxygen makes names for enums that have none."""
    return not member.name.startswith("@")


def page_of_group(name, members):
    lines = [underlined(name), f".. doxygengroup:: {name}", "   :desc-only:", ""]
    lines += [line for member in members if not is_named(member) for line in (f".. {DIRECTIVES[member.kind]}:: {member.name}", "")]
    members = [member for member in members if is_named(member)]
    if members:
        lines += [underlined("See also", "-"), ", ".join(f"``{member.name}(3)``" for member in members), ""]
    return "\n".join(lines)


def main(xml, output):
    rows, links, groups = [], {}, []
    for path in sorted(pathlib.Path(xml).glob("group__*.xml")):
        name, title, members = read_group(path)
        named = {member.name: member for member in members}
        for member in filter(is_named, members):
            base = member.name.removesuffix("Config")
            if member.kind == "function" and base != member.name and base in named:
                links[member.name] = base
                continue
            (output / f"{member.name}.rst").write_text(page_of(member, named.get(member.name + "Config")))
            rows.append([member.name, member.name, member.brief or title, [], 3])
        (output / f"{name}.rst").write_text(page_of_group(name, [one for one in members if one.name not in links]))
        rows.append([name, name, title, [], 3])
        groups.append(name)
    (output / "index.rst").write_text("\n".join([underlined("Pages"), ".. toctree::", "", *(f"   {row[0]}" for row in rows), ""]))
    (output / "pages.json").write_text(json.dumps(rows))
    (output / "links.json").write_text(json.dumps(links))


if __name__ == "__main__":
    main(sys.argv[1], pathlib.Path(sys.argv[2]))
