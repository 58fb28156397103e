"""Tests that need hosts: where none can be made they are skipped with a word."""
import sys
import unittest

from .bed import Testbed, end_by_signals
from .links import Unavailable

SKIPPED = 77


def run_tests():
    """Of the file that is run."""
    end_by_signals()
    try:
        with Testbed(1):
            pass
    except Unavailable as reason:
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1], verbosity=1)
