// The MPI baseline of qccl-perf: MPI's calls behind the table of mpi_module.hpp. Built as a module
// that qccl-perf loads when it runs under mpirun. Only this file includes <mpi.h>.
#include "perf/run/mpi_module.hpp"

#include <array>
#include <climits>
#include <cstdio>
#include <cstring>

#include <mpi.h>

namespace qccl::perf {

// Returns MPI_DATATYPE_NULL for the narrow floats, which MPI lacks.
static MPI_Datatype mpi_type(DataType type) {
    switch (type) {
    case DataType::int8: return MPI_INT8_T;
    case DataType::uint8: return MPI_UINT8_T;
    case DataType::int32: return MPI_INT32_T;
    case DataType::uint32: return MPI_UINT32_T;
    case DataType::int64: return MPI_INT64_T;
    case DataType::uint64: return MPI_UINT64_T;
    case DataType::float32: return MPI_FLOAT;
    case DataType::float64: return MPI_DOUBLE;
    case DataType::int16: return MPI_INT16_T;
    case DataType::uint16: return MPI_UINT16_T;
    case DataType::complex64: return MPI_C_FLOAT_COMPLEX;
    case DataType::complex128: return MPI_C_DOUBLE_COMPLEX;
    case DataType::boolean: return MPI_C_BOOL;
    case DataType::float_int: return MPI_FLOAT_INT;
    case DataType::double_int: return MPI_DOUBLE_INT;
    case DataType::long_int: return MPI_LONG_INT;
    case DataType::int_int: return MPI_2INT;
    case DataType::short_int: return MPI_SHORT_INT;
    default: return MPI_DATATYPE_NULL;
    }
}

static MPI_Op mpi_op(RedOp op) {
    switch (op) {
    case RedOp::sum: return MPI_SUM;
    case RedOp::prod: return MPI_PROD;
    case RedOp::max: return MPI_MAX;
    case RedOp::min: return MPI_MIN;
    case RedOp::bit_and: return MPI_BAND;
    case RedOp::bit_or: return MPI_BOR;
    case RedOp::bit_xor: return MPI_BXOR;
    case RedOp::logical_and: return MPI_LAND;
    case RedOp::logical_or: return MPI_LOR;
    case RedOp::logical_xor: return MPI_LXOR;
    case RedOp::min_loc: return MPI_MINLOC;
    case RedOp::max_loc: return MPI_MAXLOC;
    default: return MPI_OP_NULL;
    }
}

static bool start(uint32_t *rank_out, uint32_t *size_out) {
    int rank = 0, size = 0;
    if (MPI_Init(nullptr, nullptr) != MPI_SUCCESS ||
        MPI_Comm_rank(MPI_COMM_WORLD, &rank) != MPI_SUCCESS ||
        MPI_Comm_size(MPI_COMM_WORLD, &size) != MPI_SUCCESS)
        return false;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    *rank_out = static_cast<uint32_t>(rank);
    *size_out = static_cast<uint32_t>(size);
    return true;
}

// MPI's own version text, up to the first comma or line end: "Open MPI v4.1.4".
static const char *library() {
    static const auto text = [] {
        std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> words{};
        int length = 0;
        MPI_Get_library_version(words.data(), &length);
        words[std::strcspn(words.data(), ",\n")] = '\0';
        return words;
    }();
    return text.data();
}

static int allgather(const void *mine, void *all, size_t bytes, void *) {
    if (bytes > INT_MAX) return 1;
    const int count = static_cast<int>(bytes);
    return MPI_Allgather(mine, count, MPI_BYTE, all, count, MPI_BYTE, MPI_COMM_WORLD) !=
           MPI_SUCCESS;
}

static int barrier() { return MPI_Barrier(MPI_COMM_WORLD) != MPI_SUCCESS; }

static bool has(const Operation &operation) {
    if (operation.collective == Collective::send && operation.ranks == 1) return false;
    if (operation.send_count() > INT_MAX || operation.recv_count() > INT_MAX) return false;
    if (!reduces(operation.collective)) return true; // a type that MPI lacks is copied as bytes
    // MPI's truth values have logical operations alone.
    if (operation.type == DataType::boolean && operation.op < RedOp::logical_and) return false;
    return mpi_type(operation.type) != MPI_DATATYPE_NULL && mpi_op(operation.op) != MPI_OP_NULL;
}

// Only the root of a reduce, a gather or a scatter may name MPI_IN_PLACE.
static int call_with_root(const Operation &operation, const void *send, void *recv, int count,
                          MPI_Datatype type) {
    const int root = static_cast<int>(operation.root);
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Aint start = 0, bytes = 0; // of a value, with the padding of a pair
    MPI_Type_get_extent(type, &start, &bytes);
    const bool is_root = rank == root;
    char *const own = static_cast<char *>(recv) + static_cast<size_t>(rank) *
                                                      static_cast<size_t>(count) *
                                                      static_cast<size_t>(bytes);
    switch (operation.collective) {
    case Collective::broadcast: return MPI_Bcast(recv, count, type, root, MPI_COMM_WORLD);
    case Collective::reduce:
        return MPI_Reduce(send      ? send
                          : is_root ? MPI_IN_PLACE
                                    : recv,
                          recv, count, type, mpi_op(operation.op), root, MPI_COMM_WORLD);
    case Collective::gather:
        return MPI_Gather(send      ? send
                          : is_root ? MPI_IN_PLACE
                                    : own,
                          count, type, recv, count, type, root, MPI_COMM_WORLD);
    case Collective::scatter:
        if (send) return MPI_Scatter(send, count, type, recv, count, type, root, MPI_COMM_WORLD);
        return MPI_Scatter(recv, count, type, is_root ? MPI_IN_PLACE : own, count, type, root,
                           MPI_COMM_WORLD);
    case Collective::send: {
        const int taker = (root + 1) % static_cast<int>(operation.ranks), tag = 0;
        if (is_root) return MPI_Send(send ? send : recv, count, type, taker, tag, MPI_COMM_WORLD);
        if (rank != taker) return MPI_SUCCESS;
        return MPI_Recv(recv, count, type, root, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    default: return 1;
    }
}

static int call(const Operation &operation, const void *send, void *recv) {
    const bool is_known = mpi_type(operation.type) != MPI_DATATYPE_NULL;
    const MPI_Datatype type = is_known ? mpi_type(operation.type) : MPI_BYTE;
    const auto count =
        static_cast<int>(operation.count * (is_known ? 1 : type_bytes(operation.type)));
    const void *const from = send ? send : MPI_IN_PLACE;
    const MPI_Op op = mpi_op(operation.op);
    switch (operation.collective) {
    case Collective::all_reduce: return MPI_Allreduce(from, recv, count, type, op, MPI_COMM_WORLD);
    case Collective::reduce_scatter:
        return MPI_Reduce_scatter_block(from, recv, count, type, op, MPI_COMM_WORLD);
    case Collective::all_gather:
        return MPI_Allgather(from, count, type, recv, count, type, MPI_COMM_WORLD);
    case Collective::all_to_all:
        return MPI_Alltoall(from, count, type, recv, count, type, MPI_COMM_WORLD);
    case Collective::scan: return MPI_Scan(from, recv, count, type, op, MPI_COMM_WORLD);
    case Collective::exscan: return MPI_Exscan(from, recv, count, type, op, MPI_COMM_WORLD);
    case Collective::barrier: return MPI_Barrier(MPI_COMM_WORLD);
    case Collective::broadcast:
    case Collective::reduce:
    case Collective::gather:
    case Collective::scatter:
    case Collective::send: return call_with_root(operation, send, recv, count, type);
    }
    return 1;
}

static void finish() { MPI_Finalize(); }

static void abort_all(int status) { MPI_Abort(MPI_COMM_WORLD, status); }

static constexpr MpiModule module{
    MpiModule::current_abi, start, library, allgather, barrier, has, call, finish, abort_all};

extern "C" [[gnu::visibility("default")]] const MpiModule *qccl_perf_mpi_module();
const MpiModule *qccl_perf_mpi_module() { return &module; }

} // namespace qccl::perf
