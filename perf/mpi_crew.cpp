#include "perf/mpi_crew.hpp"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <dlfcn.h>

namespace qccl::perf {

bool is_under_mpi() {
    // Open MPI; MPICH and its kin.
    for (const char *name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
        if (const char *size = std::getenv(name); size && std::atoi(size) > 0) return true;
    return false;
}

// Beside the program as in the build folder, else where it is installed.
static void *load_module() {
    std::error_code ignored;
    const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored);
    const auto beside = program.parent_path() / QCCL_MPI_MODULE;
    // Global: MPI's own plug-ins expect to see its symbols.
    static constexpr int flags = RTLD_NOW | RTLD_GLOBAL;
    if (void *const module = dlopen(beside.c_str(), flags)) return module;
    const bool was_there = std::filesystem::exists(beside, ignored);
    return was_there ? nullptr : dlopen(QCCL_MODULE_DIR "/" QCCL_MPI_MODULE, flags);
}

Result<std::unique_ptr<MpiCrew>> MpiCrew::create() {
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
    return std::unique_ptr<MpiCrew>(new MpiCrew(*module, rank, size));
}

MpiCrew::~MpiCrew() { module_.finish(); }

Done MpiCrew::allgather(const void *mine, void *all, size_t bytes) {
    if (module_.allgather(mine, all, bytes, nullptr) != 0)
        return Error::make(Code::remote_error, "MPI's all-gather failed");
    return {};
}

Done MpiCrew::barrier() {
    if (module_.barrier() != 0) return Error::make(Code::remote_error, "MPI's barrier failed");
    return {};
}

void MpiCrew::give_up() {
    std::fflush(nullptr);
    module_.abort(EXIT_FAILURE);
}

} // namespace qccl::perf
