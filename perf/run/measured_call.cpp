// Implements measured_call.hpp on the C API.
#include "perf/run/measured_call.hpp"

#include "base/c_numbers.hpp"
#include "perf/run/input_data.hpp"
#include "perf/run/session.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace qccl::perf {

namespace {

// Makes the calls of one rank.
class Caller {
public:
    Caller(const CallingRank &caller, const Operation &operation, const qcclCollConfig_t *config)
        : caller_(caller), operation_(operation), config_(config) {}

    Done make_one(const std::byte *send, std::byte *recv) const {
        const std::byte *const from =
            send ? send : recv + operation_.send_in_place_start(caller_.rank) * value_bytes();
        std::byte *const to =
            send ? recv : recv + operation_.recv_in_place_start(caller_.rank) * value_bytes();
        switch (operation_.pattern) {
        case Pattern::sendrecv: return send_and_receive(from, to);
        case Pattern::hypercube: return gather_by_hypercube(from, to);
        case Pattern::v_form: return call_v_form(from, to);
        case Pattern::collective: break;
        }
        return call_collective(caller_.comm, operation_, caller_.op, from, to, stream(), config_);
    }

    // A group of which a call is refused ends all the same, because its thread would stay in it.
    Done make_group(const std::byte *send, std::byte *recv) const {
        QCCL_TRY(explained(qcclGroupStart(), "qcclGroupStart"));
        Done made;
        for (uint32_t call = 0; call < operation_.calls() && made; call++) {
            made = make_one(send, recv);
            if (send) send += operation_.send_part() * value_bytes();
            recv += operation_.recv_part() * value_bytes();
        }
        const Done ended = explained(qcclGroupEnd(), "qcclGroupEnd");
        return made ? ended : made;
    }

private:
    size_t value_bytes() const { return type_bytes(operation_.type); }
    qcclDataType_t type() const { return number_in_c(operation_.type); }
    // In a group messages of a GPU block.
    qcclStream_t stream() const {
        const bool has_messages = operation_.collective == Collective::send;
        const bool is_grouped = operation_.group > 0 || operation_.kind().is_messages();
        return has_messages && is_grouped ? QCCL_STREAM_SYNC : caller_.device.stream();
    }

    Done call_v_form(const std::byte *send, std::byte *recv) const {
        const auto root = static_cast<int>(operation_.root);
        const size_t *const sent = caller_.counts.sent.data();
        const size_t *const received = caller_.counts.received.data();
        const auto called = [&]() -> qcclResult_t {
            switch (operation_.collective) {
            case Collective::all_gather:
                return qcclAllGatherVConfig(send, recv, received, nullptr, type(), caller_.comm,
                                            stream(), config_);
            case Collective::reduce_scatter:
                return qcclReduceScatterVConfig(send, recv, sent, nullptr, type(), caller_.op,
                                                caller_.comm, stream(), config_);
            case Collective::gather:
                return qcclGatherVConfig(send, *sent, recv, received, nullptr, type(), root,
                                         caller_.comm, stream(), config_);
            case Collective::scatter:
                return qcclScatterVConfig(send, sent, nullptr, recv, *received, type(), root,
                                          caller_.comm, stream(), config_);
            default: break;
            }
            return qcclAllToAllVConfig(send, sent, nullptr, recv, received, nullptr, type(),
                                       caller_.comm, stream(), config_);
        };
        return explained(called(), name(operation_.kind()), caller_.comm);
    }

    Done send_and_receive(const std::byte *send, std::byte *recv) const {
        const uint32_t ranks = operation_.ranks;
        const auto next = static_cast<int>((caller_.rank + 1) % ranks);
        const auto before = static_cast<int>((caller_.rank + ranks - 1) % ranks);
        return explained(qcclSendRecvConfig(send, operation_.count, next, recv, operation_.count,
                                            before, type(), caller_.comm, stream(), config_),
                         "qcclSendRecv", caller_.comm);
    }

    // In round k a rank has the inputs of 2^k ranks, and exchanges them with the rank whose number
    // differs in bit k.
    Done gather_by_hypercube(const std::byte *send, std::byte *recv) const {
        const size_t part = operation_.count * value_bytes();
        std::byte *const own = recv + caller_.rank * part;
        if (own != send) QCCL_TRY(caller_.device.copy(own, send, part));
        for (uint32_t held = 1; held < operation_.ranks; held *= 2) {
            const uint32_t first = caller_.rank & ~(held - 1), peer = caller_.rank ^ held;
            const uint64_t count = operation_.count * held;
            QCCL_TRY(explained(
                qcclSendRecvConfig(recv + first * part, count, static_cast<int>(peer),
                                   recv + (first ^ held) * part, count, static_cast<int>(peer),
                                   type(), caller_.comm, stream(), config_),
                "qcclSendRecv", caller_.comm));
        }
        return {};
    }

    const CallingRank &caller_;
    const Operation &operation_;
    const qcclCollConfig_t *const config_;
};

} // namespace

Result<RankOp> RankOp::create(const Operation &operation, qcclComm_t comm, uint32_t rank) {
    if (operation.op != RedOp::pre_mul_sum) return RankOp(number_in_c(operation.op));
    const uint32_t scalar = scalar_of(rank);
    std::byte stored[2 * sizeof(double)] = {};
    if (has_reals(operation.type)) {
        const double reals[] = {static_cast<double>(scalar), 0};
        store_reals(real_type(operation.type), reals, reals_of(operation.type), stored);
    } else {
        std::memcpy(stored, &scalar, std::min(sizeof scalar, type_bytes(operation.type)));
    }
    qcclRedOp_t op = qcclSum;
    QCCL_TRY(explained(qcclRedOpCreatePreMulSum(&op, stored, number_in_c(operation.type),
                                                qcclScalarHostImmediate, comm),
                       "qcclRedOpCreatePreMulSum", comm));
    return RankOp(op);
}

RankOp::~RankOp() {
    if (op_ >= first_made_op) (void)qcclRedOpDestroy(op_);
}

OwnCounts OwnCounts::of(const Operation &operation, uint32_t rank) {
    OwnCounts counts;
    if (!operation.parts) return counts;
    const CollectiveRow &row = row_of(operation.collective);
    const uint32_t sent = row.gathers ? 1 : operation.ranks;
    const uint32_t received = row.scatters ? 1 : operation.ranks;
    for (uint32_t part = 0; part < sent; part++)
        counts.sent.push_back(operation.part_count(rank, sent == 1 ? rank : part));
    for (uint32_t part = 0; part < received; part++)
        counts.received.push_back(operation.part_count(received == 1 ? rank : part, rank));
    return counts;
}

Done make_calls(const CallingRank &caller, const Operation &operation, const std::byte *send,
                std::byte *recv, const qcclCollConfig_t *config) {
    const Caller calls(caller, operation, config);
    return operation.group > 0 ? calls.make_group(send, recv) : calls.make_one(send, recv);
}

} // namespace qccl::perf
