"""Runs the blocks of one page in a folder, one after the other, as a reader does who follows the page from top to bottom.

documents_test.py uses it, one object a page. The commands find the build's tools, library, headers and Python package; ports
that a page writes are replaced by free ones. A block that takes longer than PATIENCE is killed and counts as failed. One thread
uses an object, and blocks.
"""
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import document_blocks
import launchers

HERE = pathlib.Path(__file__).resolve().parent
IS_NIGHT = bool(os.environ.get("QTEST_FULL"))
PATIENCE = 1800 if IS_NIGHT else 120  # seconds
WRITTEN_PORT = "4711"
JOINS_A_JOB = re.compile(r"qcclCommInitEnv\(|qccl\.init\(\)")
IS_PROGRAM = {"c": r"\bint main\(", "cpp": r"\bint main\(", "fortran": r"(?im)^\s*(end )?program\b"}
# A page's `wait` succeeds if every process has that was started before it. Bash forgets which ones these are, so that a trap
# takes down the number of the last one before each command.
SHELL = """started=
trap 'case " $started " in *" ${!-} "*) ;; *) started="$started ${!-}" ;; esac' DEBUG
wait() {
    local status=0 process
    for process in $started; do builtin wait "$process" || status=$?; done
    started=
    return $status
}
"""
RUN, LEFT_OUT, MISSING = "run", "not run", "skipped"


class Failure(Exception):
    """A block that does not do what the page says."""


class Missing(Exception):
    """A program or a package that this machine does not have."""


def find(program):
    path = shutil.which(program)
    if path is None:
        raise Missing(f"no {program}")
    return path


class PageRunner:
    def __init__(self, source, build):
        self.source, self.build = source, build
        self.holder = tempfile.TemporaryDirectory(prefix="qccl_docs_")
        self.folder = pathlib.Path(self.holder.name)
        (self.folder / "build").symlink_to(build)  # as in a clone
        (self.folder / ".bin").mkdir()
        (self.folder / ".bin/python3").symlink_to(sys.executable)  # the one whose packages the test knows
        self.last_output, self.blocks_of_programs = None, 0
        self.port = str(launchers.free_port())

    def close(self):
        self.holder.cleanup()

    # ---- What the commands see

    def environment(self, **more):
        found = launchers.environment(**more)
        found.pop("PYTHONUNBUFFERED", None)  # with it, the lines of ranks that print at once run into each other
        library = [str(self.build / "lib"), str(self.build / "bindings/fortran"), found.get("LD_LIBRARY_PATH")]
        tools = [str(self.folder / ".bin"), str(self.build / "perf"), found["PATH"]]
        return {**found, "LD_LIBRARY_PATH": ":".join(filter(None, library)), "PATH": ":".join(tools),
                "PKG_CONFIG_PATH": str(self.build / "meson-uninstalled"), "PYTHONPATH": str(self.build / "bindings/python"),
                "PYTHONDONTWRITEBYTECODE": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                "OMPI_MCA_rmaps_base_oversubscribe": "1", "QCCL_LIBRARY": str(self.build / "lib/libqccl.so.0")}

    def command(self, *words, text=None, **environment):
        """What a command prints. It must end with status 0."""
        try:
            done = subprocess.run([str(word) for word in words], cwd=self.folder, env=self.environment(**environment), input=text, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE, check=False)
        except subprocess.TimeoutExpired:
            raise Failure(f"{words[0]}: still running after {PATIENCE} s") from None
        if done.returncode != 0:
            raise Failure(f"{words[0]}: status {done.returncode}\n{done.stdout}")
        return done.stdout

    def ranks(self, count, *words):
        """What the ranks of a job print, which are started by hand, in the order of ranks."""
        port = launchers.free_port()
        places = [self.environment(RANK=rank, WORLD_SIZE=count, MASTER_ADDR="127.0.0.1", QCCL_PORT=port) for rank in range(count)]
        before = os.getcwd()
        os.chdir(self.folder)  # started processes inherit it
        try:
            done = launchers.start_by_hand([[str(word) for word in words]] * count, places, PATIENCE, ends_with_first_failure=True)
        finally:
            os.chdir(before)
        wrong = [f"rank {rank}: status {status}\n{out}{err}" for rank, (status, out, err) in enumerate(done) if status != 0]
        if wrong:
            raise Failure("\n".join(wrong))
        return "".join(out + err for _, out, err in done)

    # ---- Blocks

    def run(self, block):
        """(RUN, LEFT_OUT or MISSING, and the reason) of a block. Raises Failure."""
        if "output" in block.marks:
            if self.last_output is None:
                return MISSING, "what prints it has not run"
            self.compare(block.text, roughly if "roughly" in block.marks else plain)
            return RUN, ""
        if "file" in block.marks:
            (self.folder / block.marks["file"]).write_text(block.text)
            return RUN, ""
        if block.language not in document_blocks.RUN_LANGUAGES:
            return LEFT_OUT, "text"
        self.last_output = None
        if "not run" in block.marks:
            return LEFT_OUT, block.marks["not run"]
        if "night" in block.marks and not IS_NIGHT:
            return LEFT_OUT, "it takes long: only with QTEST_FULL=1"
        try:
            if "needs" in block.marks:
                find(block.marks["needs"])
            if "example" in block.marks:
                shutil.copy(self.source / "examples" / block.marks["example"], self.folder)
            self.last_output = getattr(self, "run_" + block.language)(block)
        except Missing as missing:
            return MISSING, str(missing)
        return RUN, ""

    def compare(self, expected, plain):
        """Each line that the page shows stands in what the last block printed, as `plain` sees both."""
        printed = {plain(line) for line in self.last_output.splitlines()}
        missing = [line for line in expected.splitlines() if line.strip(" .") and plain(line) not in printed]
        if missing:
            raise Failure("not printed: " + "\n".join(missing) + "\nprinted was:\n" + self.last_output)

    def run_sh(self, block):
        self.packages(*re.findall(r"pkg-config [^)\n]*?(qccl[\w-]*)\)", block.text))
        programs = [(self.folder / name).read_text() for name in re.findall(r"python3 (\w+\.py)", block.text)]
        for text in (block.text, *programs):
            self.find_imports(text)
        text = block.text.replace(WRITTEN_PORT, self.port)
        self.port = str(launchers.free_port())
        return self.command("bash", "-e", "-o", "pipefail", "-c", SHELL + text)

    def save(self, block, ending):
        self.blocks_of_programs += 1
        path = self.folder / f"block_{self.blocks_of_programs}.{ending}"
        path.write_text(block.text)
        return path

    def flags(self):
        return [f"-I{self.source / 'include'}", f"-I{self.build / 'include'}", f"-L{self.build / 'lib'}", "-lqccl"]

    def run_program(self, block, *words):
        count = int(block.marks.get("ranks", 2 if JOINS_A_JOB.search(block.text) else 1))
        return self.ranks(count, *words) if count > 1 else self.command(*words)

    def run_c(self, block, compiler="cc", standard="-std=gnu11", ending="c"):
        source = self.save(block, ending)
        warnings = ["-Wall", "-Wextra", "-Werror", standard]
        program = source.with_suffix(".out")
        if "fragment" in block.marks:
            named = [f'-DFRAGMENT="{source}"', HERE / "fragment_frame.c", "-x", "none"]
            # A fragment may leave the result of its last call in a variable.
            options = [*warnings, "-Wno-unused-variable", "-Wno-unused-but-set-variable", "-pthread", "-x", ending.replace("cpp", "c++")]
            if "compiled" in block.marks:
                return self.command(find(compiler), *options, "-fsyntax-only", *named[:2], *self.flags()[:2])
            self.command(find(compiler), *options, *named, "-o", program, *self.flags())
            return self.command(program)
        if not re.search(IS_PROGRAM[block.language], block.text):
            raise Failure("no program; say <!-- test: fragment --> above the block")
        mpi = ["mpicc" if ending == "c" else "mpicxx"] if "<qccl/mpi.h>" in block.text or "<mpi.h>" in block.text else [compiler]
        self.command(find(mpi[0]), *warnings, source, "-o", program, *self.flags())
        if mpi != [compiler]:
            return self.command(find("mpirun"), "-n", block.marks.get("ranks", "2"), program)
        return self.run_program(block, program)

    def run_cpp(self, block):
        return self.run_c(block, "c++", "-std=c++20", "cpp")

    def packages(self, *names):
        """Refuses what pkg-config would not find."""
        for name in names:
            if not (self.build / "meson-uninstalled" / f"{name}-uninstalled.pc").exists():
                raise Missing(f"no {name} in the build folder")

    def run_fortran(self, block):
        source = self.save(block, "f90")
        program = source.with_suffix(".out")
        package = "qccl-fortran" if re.search(r"(?im)^\s*use qccl", block.text) else "qccl"
        self.packages(package)
        flags = self.command(find("pkg-config"), "--cflags", "--libs", package).split()
        self.command(find("gfortran"), source, "-o", program, *flags)
        return self.run_program(block, program)

    def find_imports(self, text):
        """Refuses a program in Python that needs a package which is not here."""
        for names in re.findall(r"(?m)^\s*(?:import|from) (\w[\w., ]*?)(?: import .*)?$", text):
            for name in names.split(", "):
                path = self.build / "bindings/python" / name.replace(".", "/")
                is_here = path.is_dir() or path.with_suffix(".py").exists() if name.split(".")[0] == "qccl" else importlib.util.find_spec(name)
                if not is_here:
                    raise Missing(f"no Python package {name}")

    def run_python(self, block):
        self.find_imports(block.text)
        return self.run_program(block, sys.executable, self.save(block, "py"))


def plain(line):
    """A line without the width of its columns."""
    return " ".join(line.split())


def roughly(line):
    """A line without what differs from run to run: numbers, and their units."""
    line = re.sub(r"[-+]?\d[\d.,]*(e[-+]?\d+)?", "#", line)
    return " ".join(re.sub(r"# ([nmuµ]?s|[KMGT]?i?B)\b", "# unit", line).split())
