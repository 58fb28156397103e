// Implements mpi_rank_group.hpp: loads the MPI module and calls MPI through its table.
#include "perf/mpi_rank_group.hpp"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <dlfcn.h>

namespace qccl::perf {

namespace {

struct Said {
    const char *variable;
    int ranks;
};

// Returns 0 ranks if no launcher variable is set.
Said said_by_launcher() {
    // Open MPI; MPICH and its derivatives
    for (const char *name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
        if (const char *size = std::getenv(name); size && std::atoi(size) > 0)
            return {name, std::atoi(size)};
    return {"", 0};
}

} // namespace

bool is_under_mpi() { return said_by_launcher().ranks > 0; }

// The module is next to the program in a build folder, and otherwise in its installation folder.
static void *load_module() {
    std::error_code ignored;
    const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored);
    const auto beside = program.parent_path() / QCCL_MPI_MODULE;
    // RTLD_GLOBAL, because MPI's own plug-ins need its symbols.
    static constexpr int flags = RTLD_NOW | RTLD_GLOBAL;
    if (void *const module = dlopen(beside.c_str(), flags)) return module;
    const bool was_there = std::filesystem::exists(beside, ignored);
    return was_there ? nullptr : dlopen(QCCL_MODULE_DIR "/" QCCL_MPI_MODULE, flags);
}

Result<std::unique_ptr<MpiRankGroup>> MpiRankGroup::create() {
    void *const library = load_module();
    if (!library)
        return Error::make(Code::invalid_usage,
                           "mpirun has started this process, but the MPI module cannot be loaded "
                           "(was QCCL built with MPI?): %.150s",
                           dlerror());
    const auto function = reinterpret_cast<MpiModuleFunction *>(dlsym(library, mpi_module_symbol));
    const MpiModule *const module = function ? function() : nullptr;
    if (!module || module->abi != MpiModule::current_abi)
        return Error::make(Code::invalid_usage,
                           "the MPI module belongs to another version: built for %u, need %u",
                           module ? module->abi : 0, MpiModule::current_abi);
    uint32_t rank = 0, size = 0;
    if (!module->start(&rank, &size)) return Error::make(Code::system_error, "MPI does not start");
    std::unique_ptr<MpiRankGroup> rank_group(new MpiRankGroup(*module, rank, size));
    // With another MPI's launcher every process would take itself for the whole job.
    const Said said = said_by_launcher();
    if (size == 1 && said.ranks > 1)
        return Error::make(Code::invalid_argument,
                           "the MPI of this qccl-perf (%s) counts one rank, %s=%d: another MPI's "
                           "mpirun has started it; take that one's, or leave out --baseline",
                           module->library(), said.variable, said.ranks);
    return rank_group;
}

MpiRankGroup::~MpiRankGroup() { module_.finish(); }

Done MpiRankGroup::allgather(const void *mine, void *all, size_t bytes) {
    if (module_.allgather(mine, all, bytes, nullptr) != 0)
        return Error::make(Code::remote_error, "MPI's all-gather failed");
    return {};
}

Done MpiRankGroup::barrier() {
    if (module_.barrier() != 0) return Error::make(Code::remote_error, "MPI's barrier failed");
    return {};
}

void MpiRankGroup::give_up() {
    std::fflush(nullptr);
    module_.abort(EXIT_FAILURE);
}

} // namespace qccl::perf
