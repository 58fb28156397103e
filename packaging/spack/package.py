"""The recipe of QCCL for Spack 1.0 and later, for a repository of packages (packages/qccl/package.py in it).

No release is published yet, so the recipe names no archive: `spack develop --path SOURCES qccl@0.1.0` builds from a source tree.
"""
from spack_repo.builtin.build_systems.meson import MesonPackage

from spack.package import conflicts, depends_on, license, variant, version


class Qccl(MesonPackage):
    """Collectives with compression built in: a C library that moves encoded bytes between ranks."""

    license("BSD-3-Clause")

    version("0.1.0")

    variant("ucx", default=True, description="The network between hosts")
    variant("mpi", default=False, description="MPI as the baseline of qccl-perf")
    variant("cuda", default=False, description="Kernels for NVIDIA's GPUs")
    variant("emulated", default=False, description="A GPU that the CPU emulates, for tests")
    variant("tools", default=True, description="qccl-perf and qccl-info")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("meson@1.0.1:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("python@3.9:", type="build")
    depends_on("highway@1.0.3:", type="build")
    depends_on("nlohmann-json", type="build")
    depends_on("cli11", type="build", when="+tools")
    # The tools read topologies with it; Meson asks for it in every build.
    depends_on("pugixml")
    depends_on("hwloc@2.5:")
    depends_on("libsodium")
    depends_on("ucx@1.13:", when="+ucx")
    depends_on("mpi", when="+mpi")
    depends_on("cuda@12:", when="+cuda")
    depends_on("boost+context", when="+emulated")

    conflicts("+mpi", when="~tools", msg="MPI is the baseline of qccl-perf, which ~tools leaves out")

    # C++20
    conflicts("%gcc@:11")
    conflicts("%clang@:13")

    def meson_args(self):
        def feature(name):
            return f"-D{name}={'enabled' if self.spec.satisfies('+' + name) else 'disabled'}"

        return [
            *map(feature, ("ucx", "mpi", "cuda", "emulated")),
            "-Dhip=disabled",
            # The Python package comes by pip.
            "-Dpython=disabled",
            "-Dfortran=disabled",
            "-Ddocs=disabled",
            "-Dtests=false",
            f"-Dperf={'true' if self.spec.satisfies('+tools') else 'false'}",
        ]
