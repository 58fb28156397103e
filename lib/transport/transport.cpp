// Makes a call of one exchange step by step: the slow twin of SharedTransport::exchange.
#include "transport/transport.hpp"

namespace qccl {

Done Transport::exchange(EagerExchange &call) {
    QCCL_TRY(begin(call.shape, call.numbers, call.timeout, Publishes::after_eager_slot));
    QCCL_TRY(std::byte *const own, eager_slot(call.bytes));
    call.write(own);
    post_eager(call.bytes);
    call.posted();
    for (size_t number = 0; number < call.ranks.size(); number++) {
        std::span<const std::byte> slot{own, call.bytes};
        if (const uint32_t peer = call.ranks[number]; peer != rank()) {
            QCCL_TRY(slot, await_eager(peer));
        }
        QCCL_TRY(call.read(number, slot));
    }
    return end();
}

} // namespace qccl
