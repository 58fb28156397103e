// Implements the calling thread's last error, and checks that the C result codes equal Code.
#include "api/boundary.hpp"

namespace qccl {

// The C header repeats these numbers, because C cannot use the library's table of codes.
static_assert(qcclSuccess == to_c(Code::success));
static_assert(qcclUnhandledDeviceError == to_c(Code::unhandled_device_error));
static_assert(qcclSystemError == to_c(Code::system_error));
static_assert(qcclInternalError == to_c(Code::internal_error));
static_assert(qcclInvalidArgument == to_c(Code::invalid_argument));
static_assert(qcclInvalidUsage == to_c(Code::invalid_usage));
static_assert(qcclRemoteError == to_c(Code::remote_error));
static_assert(qcclInProgress == to_c(Code::in_progress));
static_assert(qcclTimeout == to_c(Code::timeout));
static_assert(qcclMismatch == to_c(Code::mismatch));
static_assert(qcclPeerLost == to_c(Code::peer_lost));
static_assert(qcclRevoked == to_c(Code::revoked));
static_assert(qcclDamagedData == to_c(Code::damaged_data));

LastError &last_error() {
    static constinit thread_local LastError last;
    return last;
}

qcclResult_t report(const Error &error) {
    if (error.code != Code::in_progress) last_error().error = error; // in_progress is no error
    return to_c(error.code);
}

} // namespace qccl
