// C functions for the version and for errors. Any thread may call them at any time.
#include "api/config.hpp"
#include "api/entry.hpp"

#include <cstdio>

namespace qccl {

static qcclErrorInfo_t to_info(const RecordedError &recorded, uint32_t rank) {
    qcclErrorInfo_t info{};
    info.code = to_c(recorded.error.code);
    info.rank = static_cast<int32_t>(rank);
    info.peer = recorded.error.rank;
    info.collective = recorded.call.collective;
    info.call = recorded.call.number;
    info.tag = recorded.call.tag;
    info.expected = recorded.error.expected;
    info.got = recorded.error.got;
    return info;
}

} // namespace qccl

using namespace qccl;

qcclResult_t qcclGetVersion(int *version_out) {
    return guarded([=]() -> Done {
        if (!version_out) return Error::make(Code::invalid_argument, "version_out is NULL");
        *version_out = QCCL_VERSION;
        return {};
    });
}
QCCL_TWIN(qcclGetVersion);

const char *qcclGetErrorString(qcclResult_t result) { return code_text(static_cast<Code>(result)); }
QCCL_TWIN(qcclGetErrorString);

const char *qcclGetLastError(qcclComm_t comm) {
    LastError &last = last_error();
    last.shown[0] = 0;
    if (!comm)
        std::snprintf(last.shown, sizeof last.shown, "%s", last.error.text);
    else
        // A question must not cause an error itself. A value that never was a handle has no
        // sentence. An ended handle, or a handle of a forked child's parent, has only the sentence
        // of its refusal.
        (void)exception_boundary([&]() -> Done {
            const auto usable = take_comm(comm);
            if (!usable && usable.error().code == Code::invalid_usage)
                std::snprintf(last.shown, sizeof last.shown, "%s", usable.error().text);
            QCCL_TRY(outcome(usable));
            if (const auto recorded = (*usable)->last_error())
                std::snprintf(last.shown, sizeof last.shown, "%s", recorded->error.text);
            return {};
        });
    return last.shown;
}
QCCL_TWIN(qcclGetLastError);

// A wrong question does not replace the error that the question is about.
qcclResult_t qcclGetErrorInfo(qcclComm_t comm, qcclErrorInfo_t *info_out) {
    return at_any_time(comm, [=](Comm &found) -> Done {
        if (!info_out) return Error::make(Code::invalid_argument, "info_out is NULL");
        const RecordedError none{{.code = Code::success}, {}};
        const qcclErrorInfo_t info = to_info(found.last_error().value_or(none), found.rank());
        constexpr size_t first_bytes = 88; // release 0.1
        return give_struct("qcclErrorInfo_t", &info, sizeof info, first_bytes, info_out);
    });
}
QCCL_TWIN(qcclGetErrorInfo);
