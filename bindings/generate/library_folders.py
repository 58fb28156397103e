"""Writes the Python module that says where the library lies, seen from the package: installed, and in the build folder.

usage: library_folders.py OUTPUT PACKAGE_FOLDER LIBRARY_FOLDER BUILT_PACKAGE_FOLDER BUILT_LIBRARY_FOLDER
"""
import os
import pathlib
import sys


def main(output, package, library, built_package, built_library):
    folders = [os.path.relpath(library, package), os.path.relpath(built_library, built_package)]
    pathlib.Path(output).write_text(f'"""Where the library lies, seen from this package."""\n\nFOLDERS = {folders!r}\n')


if __name__ == "__main__":
    main(*sys.argv[1:])
