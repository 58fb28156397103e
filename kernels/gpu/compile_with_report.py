"""Compiles for a GPU, and keeps what the compiler says of the registers and the memory that kernels need.

usage: compile_with_report.py REPORT COMMAND...

What the command prints goes to REPORT, and to stderr where it fails.
"""
import pathlib
import subprocess
import sys

report, command = sys.argv[1], sys.argv[2:]
done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
if done.returncode != 0:
    sys.stderr.write(done.stdout)
    sys.exit(done.returncode)
pathlib.Path(report).write_text(done.stdout)
