// Implements a communicator's part in its rank's trace and call log.
#include "api/comm_trace.hpp"

#include <qccl/version.h>

#include <string>

namespace qccl {

std::string library_version() {
    return std::to_string(QCCL_VERSION_MAJOR) + "." + std::to_string(QCCL_VERSION_MINOR) + "." +
           std::to_string(QCCL_VERSION_PATCH);
}

Result<TracePatterns> trace_patterns(const Settings &settings) {
    TracePatterns patterns{.trace = settings.trace, .calls = settings.record_calls};
    QCCL_TRY(patterns.check());
    return patterns;
}

std::unique_ptr<CommTrace> CommTrace::create(const Settings &settings, const TraceOrigin &origin,
                                             LoggedComm comm, const Log &log) {
    std::shared_ptr<TraceService> service = origin.service;
    if (!origin.is_child) {
        const TracePatterns patterns{.trace = settings.trace, .calls = settings.record_calls};
        if (patterns.are_empty()) return nullptr;
        auto made = TraceService::create(patterns, comm.rank, comm.ranks(), library_version());
        if (!made) log.warn("calls are not traced: %s", made.error().text);
        if (made) service = std::move(*made);
    }
    if (!service) return nullptr;
    comm.origin = origin.how;
    comm.parent = origin.parent;
    return std::unique_ptr<CommTrace>(new CommTrace(std::move(service), std::move(comm)));
}

void CommTrace::warn(const Log &log) const {
    for (const TraceNotice &notice : service_->take_notices())
        notice.is_warning ? log.warn("%s", notice.text.c_str())
                          : log.info("%s", notice.text.c_str());
}

void CommTrace::end(const Log &log) const {
    service_->detach(tracer_);
    tell(log);
}

} // namespace qccl
