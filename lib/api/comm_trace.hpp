// A communicator's part in its rank's trace and call log (QCCL_TRACE, QCCL_RECORD_CALLS).
// Communicators that are made from another write to the files of that one's rank.
#pragma once

#include "base/log.hpp"
#include "base/settings.hpp"
#include "base/ticks.hpp"
#include "trace/trace_service.hpp"

#include <memory>

namespace qccl {

class AuditCollector;

// What a communicator was made from, as far as traces and audits show it.
struct TraceOrigin {
    const char *how = "init"; // or split, or shrink
    bool is_child = false;
    std::shared_ptr<TraceService> service = nullptr; // the parent's; null: it writes no files
    uint32_t parent = 0;                             // its number there
    std::shared_ptr<AuditCollector> audit = nullptr; // the parent's, likewise
};

// "0.1.0"
std::string library_version();

// What such files are called; invalid_argument where a name cannot be made.
Result<TracePatterns> trace_patterns(const Settings &settings);

class CommTrace {
public:
    // Null where nothing is traced, also where it cannot be, of which the log is warned. `comm` has
    // all but its number, origin and parent.
    static std::unique_ptr<CommTrace> create(const Settings &settings, const TraceOrigin &origin,
                                             LoggedComm comm, const Log &log);

    CallTracer &tracer() const { return *tracer_; }
    TraceOrigin origin_of_child(const char *how) const {
        return {.how = how, .is_child = true, .service = service_, .parent = tracer_->comm().id};
    }
    // What has become of the files since.
    void tell(const Log &log) const {
        if (service_->has_notices()) warn(log);
    }
    // After the last call; returns when the files have all of it.
    void end(const Log &log) const;

private:
    CommTrace(std::shared_ptr<TraceService> service, LoggedComm comm)
        : service_(std::move(service)), tracer_(service_->attach(std::move(comm))) {}
    void warn(const Log &log) const;

    const std::shared_ptr<TraceService> service_;
    const std::shared_ptr<CallTracer> tracer_;
};

} // namespace qccl
