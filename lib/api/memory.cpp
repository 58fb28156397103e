// C functions for memory that peers can map, and for its registration with communicators.
#include "api/call/entry.hpp"
#include "memory/shared_block.hpp"

#include <cinttypes>

namespace qccl {

static Error unseen(const char *argument, const void *given, const Error &error) {
    return Error::make(error.code, "cannot tell whether qcclMemAlloc gave %s, which is %p: %.120s",
                       argument, given, error.text);
}

static Result<void *> allocate(size_t bytes) {
    if (bytes == 0) return invalid_argument("bytes is 0");
    if (bytes > most_block_bytes())
        return invalid_argument("bytes is %zu, more than memory can have", bytes);
    return allocate_block(bytes);
}

static Done release(void *memory) {
    const auto block = block_at(memory);
    if (!block) return unseen("pointer", memory, block.error());
    if (!*block)
        return invalid_argument(
            "pointer is %p, which qcclMemAlloc did not give (or it has been freed)", memory);
    if ((*block)->is_registered())
        return Error::make(Code::invalid_usage,
                           "pointer is %p, which is registered with a communicator; "
                           "qcclCommDeregister or the end of the communicator comes first",
                           memory);
    free_block(**block);
    return {};
}

// Returns the block that holds the `bytes` bytes at `buffer`.
static Result<SharedBlock *> block_of(const void *buffer, size_t bytes) {
    const auto block = block_around(buffer);
    if (!block) return unseen("buffer", buffer, block.error());
    if (!*block)
        return invalid_argument(
            "buffer is %p, which is not memory from qcclMemAlloc; allocate it there, "
            "or leave it unregistered: any memory works in any collective",
            buffer);
    const uint64_t rest = (*block)->rest(buffer);
    if (bytes <= rest) return *block;
    return invalid_argument("bytes is %zu, but from buffer on qcclMemAlloc gave only %" PRIu64,
                            bytes, rest)
        .compared(static_cast<int64_t>(rest), static_cast<int64_t>(bytes));
}

// Peers may read the memory in calls in progress already.
static Done check_idle(const Comm &comm) {
    if (!comm.is_busy()) return {};
    return Error::make(Code::invalid_usage,
                       "comm: calls on streams are under way; wait for them first "
                       "(qcclStreamSynchronize or qcclCommFinalize)");
}

} // namespace qccl

using namespace qccl;

qcclResult_t qcclMemAlloc(void **pointer_out, size_t bytes) {
    return guarded([=]() -> Done {
        if (!pointer_out) return invalid_argument("pointer_out is NULL");
        QCCL_TRY(*pointer_out, allocate(bytes));
        return {};
    });
}
QCCL_TWIN(qcclMemAlloc);

qcclResult_t qcclMemFree(void *pointer) {
    return guarded([=]() -> Done { return pointer ? release(pointer) : Done(); });
}
QCCL_TWIN(qcclMemFree);

qcclResult_t qcclCommRegister(qcclComm_t comm, void *buffer, size_t bytes, void **handle_out) {
    return inside(comm, [=](Comm &entered) -> Done {
        if (!buffer) return invalid_argument("buffer is NULL");
        if (bytes == 0) return invalid_argument("bytes is 0");
        if (!handle_out) return invalid_argument("handle_out is NULL");
        QCCL_TRY(check_idle(entered));
        QCCL_TRY(SharedBlock *const block, block_of(buffer, bytes));
        *handle_out = entered.register_block(*block);
        return {};
    });
}
QCCL_TWIN(qcclCommRegister);

qcclResult_t qcclCommDeregister(qcclComm_t comm, void *handle) {
    return inside(comm, [=](Comm &entered) -> Done {
        if (!handle) return {};
        QCCL_TRY(check_idle(entered));
        return entered.deregister(handle);
    });
}
QCCL_TWIN(qcclCommDeregister);
