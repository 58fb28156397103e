// Memory that other processes can map, and its registration with communicators, for C.
#include "api/entry.hpp"
#include "api/shared_block.hpp"

using namespace qccl;

qcclResult_t qcclMemAlloc(void **pointer_out, size_t bytes) {
    return guarded([=]() -> Done {
        if (!pointer_out) return Error::make(Code::invalid_argument, "pointer_out is NULL");
        QCCL_TRY(*pointer_out, allocate_block(bytes));
        return {};
    });
}
QCCL_TWIN(qcclMemAlloc);

qcclResult_t qcclMemFree(void *pointer) {
    return guarded([=]() -> Done {
        if (pointer) QCCL_TRY(free_block(pointer));
        return {};
    });
}
QCCL_TWIN(qcclMemFree);

// Calls that are under way may have lent the memory already.
static Done check_idle(const Comm &comm) {
    if (!comm.is_busy()) return {};
    return Error::make(Code::invalid_usage,
                       "comm: calls on streams are under way; wait for them first "
                       "(qcclStreamSynchronize or qcclCommFinalize)");
}

qcclResult_t qcclCommRegister(qcclComm_t comm, void *buffer, size_t bytes, void **handle_out) {
    return inside(comm, [=](Comm &entered) -> Done {
        if (!buffer) return Error::make(Code::invalid_argument, "buffer is NULL");
        if (bytes == 0) return Error::make(Code::invalid_argument, "bytes is 0");
        if (!handle_out) return Error::make(Code::invalid_argument, "handle_out is NULL");
        QCCL_TRY(check_idle(entered));
        QCCL_TRY(SharedBlock *const block, find_block(buffer, bytes));
        *handle_out = entered.registrations().add(*block);
        return {};
    });
}
QCCL_TWIN(qcclCommRegister);

qcclResult_t qcclCommDeregister(qcclComm_t comm, void *handle) {
    return inside(comm, [=](Comm &entered) -> Done {
        if (!handle) return {};
        QCCL_TRY(check_idle(entered));
        return entered.registrations().remove(handle);
    });
}
QCCL_TWIN(qcclCommDeregister);
