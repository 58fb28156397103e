// The MPI baseline of qccl-perf: MPI's calls behind the table of mpi_module.hpp. Built as a module
// that qccl-perf loads when it runs under mpirun. Only this file includes <mpi.h>.
#include "perf/run/mpi_module.hpp"

#include <algorithm>
#include <array>
#include <climits>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

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
    // A type that MPI lacks is copied as bytes.
    const bool is_known = mpi_type(operation.type) != MPI_DATATYPE_NULL;
    const uint64_t most = INT_MAX / (is_known ? 1 : type_bytes(operation.type));
    if (operation.send_count() > most || operation.recv_count() > most) return false;
    if (!reduces(operation.collective)) return true;
    // MPI's truth values have logical operations alone.
    if (operation.type == DataType::boolean && operation.op < RedOp::logical_and) return false;
    return is_known && mpi_op(operation.op) != MPI_OP_NULL;
}

namespace {

// A call as MPI takes it. `send` and `recv` may be MPI_IN_PLACE.
struct MpiCall {
    const void *send;
    void *recv;
    int count;
    MPI_Datatype type;
    MPI_Op op;
    int rank, root, ranks;
    size_t part_bytes; // of `count` values

    int after(int distance) const { return (rank + ranks + distance) % ranks; }
};

} // namespace

// Where a call names MPI_IN_PLACE: of a reduce, a gather or a scatter only the root may.
static void place(const Operation &operation, MpiCall &call) {
    if (call.send) return;
    const bool is_root = call.rank == call.root;
    const auto rank = static_cast<uint32_t>(call.rank);
    const uint64_t start =
        std::max(operation.send_in_place_start(rank), operation.recv_in_place_start(rank));
    char *const own = static_cast<char *>(call.recv) + start * type_bytes(operation.type);
    call.send = MPI_IN_PLACE;
    if (operation.collective == Collective::send) call.send = call.recv;
    if (operation.collective == Collective::reduce && !is_root) call.send = call.recv;
    if (operation.collective == Collective::gather && !is_root) call.send = own;
    if (operation.collective == Collective::scatter) {
        call.send = call.recv;
        call.recv = is_root ? MPI_IN_PLACE : own;
    }
}

static MpiCall mpi_call(const Operation &operation, const void *send, void *recv) {
    const bool is_known = mpi_type(operation.type) != MPI_DATATYPE_NULL;
    const size_t bytes = type_bytes(operation.type);
    MpiCall call{.send = send,
                 .recv = recv,
                 .count = static_cast<int>(operation.count * (is_known ? 1 : bytes)),
                 .type = is_known ? mpi_type(operation.type) : MPI_BYTE,
                 .op = mpi_op(operation.op),
                 .rank = 0,
                 .root = static_cast<int>(operation.root),
                 .ranks = static_cast<int>(operation.ranks),
                 .part_bytes = operation.count * bytes};
    MPI_Comm_rank(MPI_COMM_WORLD, &call.rank);
    if (!operation.kind().is_messages()) place(operation, call);
    return call;
}

static constexpr int tag = 0;

// The rounds of measured_call.cpp.
static int run_hypercube(const MpiCall &c) {
    char *const all = static_cast<char *>(c.recv);
    const auto part = [&](int rank) { return all + static_cast<size_t>(rank) * c.part_bytes; };
    if (c.send) std::memcpy(part(c.rank), c.send, c.part_bytes);
    for (int held = 1; held < c.ranks; held *= 2) {
        const int first = c.rank & ~(held - 1), peer = c.rank ^ held;
        const int status =
            MPI_Sendrecv(part(first), c.count * held, c.type, peer, tag, part(first ^ held),
                         c.count * held, c.type, peer, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (status != MPI_SUCCESS) return status;
    }
    return MPI_SUCCESS;
}

static int run_message(const MpiCall &c) {
    const int taker = (c.root + 1) % c.ranks;
    if (c.rank == c.root) return MPI_Send(c.send, c.count, c.type, taker, tag, MPI_COMM_WORLD);
    if (c.rank != taker) return MPI_SUCCESS;
    return MPI_Recv(c.recv, c.count, c.type, c.root, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

namespace {

// The counts and displacements of a v-form, as MPI takes them.
struct MpiParts {
    std::shared_ptr<const PartCounts> parts;
    DataType type = DataType::float32;
    std::vector<int> sent, send_starts, received, recv_starts;

    // Returns those of the operation, which the timed calls of a point share.
    static const MpiParts &of(const Operation &operation, int rank) {
        static MpiParts latest;
        if (latest.parts != operation.parts || latest.type != operation.type)
            latest = MpiParts(operation, static_cast<uint32_t>(rank));
        return latest;
    }

private:
    MpiParts() = default;
    MpiParts(const Operation &operation, uint32_t rank)
        : parts(operation.parts), type(operation.type) {
        const bool is_known = mpi_type(type) != MPI_DATATYPE_NULL;
        const uint64_t unit = is_known ? 1 : type_bytes(type);
        uint64_t send_start = 0, recv_start = 0;
        for (uint32_t other = 0; other < operation.ranks; other++) {
            sent.push_back(static_cast<int>(operation.part_count(rank, other) * unit));
            send_starts.push_back(static_cast<int>(send_start));
            send_start += operation.part_count(rank, other) * unit;
            received.push_back(static_cast<int>(operation.part_count(other, rank) * unit));
            recv_starts.push_back(static_cast<int>(recv_start));
            recv_start += operation.part_count(other, rank) * unit;
        }
    }
};

} // namespace

// Begins the call if `request` is given, else blocks. Where a rank has one part, it is the one for
// itself.
static int run_v_form(const Operation &operation, const MpiCall &c, MPI_Request *request) {
    const MpiParts &p = MpiParts::of(operation, c.rank);
    const int sent = p.sent[static_cast<size_t>(c.rank)];
    const int received = p.received[static_cast<size_t>(c.rank)];
    const int *const s = p.sent.data(), *const s_at = p.send_starts.data();
    const int *const r = p.received.data(), *const r_at = p.recv_starts.data();
    const MPI_Comm world = MPI_COMM_WORLD;
    switch (operation.collective) {
    case Collective::all_gather:
        return request
                   ? MPI_Iallgatherv(c.send, sent, c.type, c.recv, r, r_at, c.type, world, request)
                   : MPI_Allgatherv(c.send, sent, c.type, c.recv, r, r_at, c.type, world);
    case Collective::reduce_scatter:
        return request ? MPI_Ireduce_scatter(c.send, c.recv, s, c.type, c.op, world, request)
                       : MPI_Reduce_scatter(c.send, c.recv, s, c.type, c.op, world);
    case Collective::gather:
        return request ? MPI_Igatherv(c.send, sent, c.type, c.recv, r, r_at, c.type, c.root, world,
                                      request)
                       : MPI_Gatherv(c.send, sent, c.type, c.recv, r, r_at, c.type, c.root, world);
    case Collective::scatter:
        return request
                   ? MPI_Iscatterv(c.send, s, s_at, c.type, c.recv, received, c.type, c.root, world,
                                   request)
                   : MPI_Scatterv(c.send, s, s_at, c.type, c.recv, received, c.type, c.root, world);
    default: break;
    }
    return request
               ? MPI_Ialltoallv(c.send, s, s_at, c.type, c.recv, r, r_at, c.type, world, request)
               : MPI_Alltoallv(c.send, s, s_at, c.type, c.recv, r, r_at, c.type, world);
}

static int run_one(const Operation &operation, const MpiCall &c) {
    if (operation.parts) return run_v_form(operation, c, nullptr);
    if (operation.pattern == Pattern::hypercube) return run_hypercube(c);
    if (operation.pattern == Pattern::sendrecv)
        return MPI_Sendrecv(c.send, c.count, c.type, c.after(1), tag, c.recv, c.count, c.type,
                            c.after(-1), tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    switch (operation.collective) {
    case Collective::all_reduce:
        return MPI_Allreduce(c.send, c.recv, c.count, c.type, c.op, MPI_COMM_WORLD);
    case Collective::reduce_scatter:
        return MPI_Reduce_scatter_block(c.send, c.recv, c.count, c.type, c.op, MPI_COMM_WORLD);
    case Collective::all_gather:
        return MPI_Allgather(c.send, c.count, c.type, c.recv, c.count, c.type, MPI_COMM_WORLD);
    case Collective::all_to_all:
        return MPI_Alltoall(c.send, c.count, c.type, c.recv, c.count, c.type, MPI_COMM_WORLD);
    case Collective::scan: return MPI_Scan(c.send, c.recv, c.count, c.type, c.op, MPI_COMM_WORLD);
    case Collective::exscan:
        return MPI_Exscan(c.send, c.recv, c.count, c.type, c.op, MPI_COMM_WORLD);
    case Collective::barrier: return MPI_Barrier(MPI_COMM_WORLD);
    case Collective::broadcast: return MPI_Bcast(c.recv, c.count, c.type, c.root, MPI_COMM_WORLD);
    case Collective::reduce:
        return MPI_Reduce(c.send, c.recv, c.count, c.type, c.op, c.root, MPI_COMM_WORLD);
    case Collective::gather:
        return MPI_Gather(c.send, c.count, c.type, c.recv, c.count, c.type, c.root, MPI_COMM_WORLD);
    case Collective::scatter:
        return MPI_Scatter(c.send, c.count, c.type, c.recv, c.count, c.type, c.root,
                           MPI_COMM_WORLD);
    case Collective::send: return run_message(c);
    }
    return 1;
}

// Begins the messages of one call of a group.
static int begin_messages(const Operation &operation, const MpiCall &c,
                          std::vector<MPI_Request> &requests) {
    const bool is_ring = operation.pattern == Pattern::sendrecv;
    const int taker = is_ring ? c.after(1) : (c.root + 1) % c.ranks;
    const int giver = is_ring ? c.after(-1) : c.root;
    int status = MPI_SUCCESS;
    if (is_ring || c.rank == taker)
        status = MPI_Irecv(c.recv, c.count, c.type, giver, tag, MPI_COMM_WORLD,
                           &requests.emplace_back());
    if (status == MPI_SUCCESS && (is_ring || c.rank == giver))
        status = MPI_Isend(c.send, c.count, c.type, taker, tag, MPI_COMM_WORLD,
                           &requests.emplace_back());
    return status;
}

static int begin_one(const Operation &operation, const MpiCall &c,
                     std::vector<MPI_Request> &requests) {
    if (operation.collective == Collective::send) return begin_messages(operation, c, requests);
    MPI_Request *const r = &requests.emplace_back();
    if (operation.parts) return run_v_form(operation, c, r);
    switch (operation.collective) {
    case Collective::all_reduce:
        return MPI_Iallreduce(c.send, c.recv, c.count, c.type, c.op, MPI_COMM_WORLD, r);
    case Collective::reduce_scatter:
        return MPI_Ireduce_scatter_block(c.send, c.recv, c.count, c.type, c.op, MPI_COMM_WORLD, r);
    case Collective::all_gather:
        return MPI_Iallgather(c.send, c.count, c.type, c.recv, c.count, c.type, MPI_COMM_WORLD, r);
    case Collective::all_to_all:
        return MPI_Ialltoall(c.send, c.count, c.type, c.recv, c.count, c.type, MPI_COMM_WORLD, r);
    case Collective::scan:
        return MPI_Iscan(c.send, c.recv, c.count, c.type, c.op, MPI_COMM_WORLD, r);
    case Collective::exscan:
        return MPI_Iexscan(c.send, c.recv, c.count, c.type, c.op, MPI_COMM_WORLD, r);
    case Collective::barrier: return MPI_Ibarrier(MPI_COMM_WORLD, r);
    case Collective::broadcast:
        return MPI_Ibcast(c.recv, c.count, c.type, c.root, MPI_COMM_WORLD, r);
    case Collective::reduce:
        return MPI_Ireduce(c.send, c.recv, c.count, c.type, c.op, c.root, MPI_COMM_WORLD, r);
    case Collective::gather:
        return MPI_Igather(c.send, c.count, c.type, c.recv, c.count, c.type, c.root, MPI_COMM_WORLD,
                           r);
    case Collective::scatter:
        return MPI_Iscatter(c.send, c.count, c.type, c.recv, c.count, c.type, c.root,
                            MPI_COMM_WORLD, r);
    case Collective::send: break;
    }
    return 1;
}

// Begins all calls of a group and waits for them.
static int run_group(const Operation &operation, const void *send, void *recv) {
    const size_t bytes = type_bytes(operation.type);
    std::vector<MPI_Request> requests;
    requests.reserve(size_t{2} * operation.calls());
    const auto *from = static_cast<const char *>(send);
    auto *to = static_cast<char *>(recv);
    for (uint32_t call = 0; call < operation.calls(); call++) {
        const int status = begin_one(operation, mpi_call(operation, from, to), requests);
        if (status != MPI_SUCCESS) return status;
        if (from) from += operation.send_part() * bytes;
        to += operation.recv_part() * bytes;
    }
    return MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
}

static int call(const Operation &operation, const void *send, void *recv) {
    if (operation.group > 0) return run_group(operation, send, recv);
    return run_one(operation, mpi_call(operation, send, recv));
}

static void finish() { MPI_Finalize(); }

static void abort_all(int status) { MPI_Abort(MPI_COMM_WORLD, status); }

static constexpr MpiModule module{
    MpiModule::current_abi, start, library, allgather, barrier, has, call, finish, abort_all};

extern "C" [[gnu::visibility("default")]] const MpiModule *qccl_perf_mpi_module();
const MpiModule *qccl_perf_mpi_module() { return &module; }

} // namespace qccl::perf
