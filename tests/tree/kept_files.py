"""Files that tests write into the build folder, from which ninja compiles."""


def write_if_new(path, text):
    """What has not changed is not compiled again."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
