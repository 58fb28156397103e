// A communicator's part in its rank's trace and call log (QCCL_TRACE, QCCL_RECORD_CALLS). A
// communicator made by split or shrink writes to the files of its parent's rank. Creation and Comm
// use it.
#pragma once

#include "base/log.hpp"
#include "base/settings.hpp"
#include "base/ticks.hpp"
#include "trace/trace_service.hpp"

#include <memory>

namespace qccl {

class AuditCollector;

// The origin of a communicator, as traces and audits show it.
struct TraceOrigin {
    const char *how = "init"; // or split, or shrink
    bool is_child = false;
    std::shared_ptr<TraceService> service = nullptr; // the parent's; null: it writes no files
    uint32_t parent = 0;                             // the parent's number in the service
    std::shared_ptr<AuditCollector> audit = nullptr; // the parent's; null: no audit
};

// "0.1.0"
std::string library_version();

// Returns the patterns of the files' names, or invalid_argument if a name cannot be made of one.
Result<TracePatterns> trace_patterns(const Settings &settings);

class CommTrace {
public:
    // Returns null if nothing is traced, and also, after a warning in `log`, if tracing cannot
    // start. `comm` has everything but its number, origin and parent.
    static std::unique_ptr<CommTrace> create(const Settings &settings, const TraceOrigin &origin,
                                             LoggedComm comm, const Log &log);

    CallTracer &tracer() const { return *tracer_; }
    TraceOrigin origin_of_child(const char *how) const {
        return {.how = how, .is_child = true, .service = service_, .parent = tracer_->comm().id};
    }
    // Logs what has happened to the files since the last call.
    void tell(const Log &log) const {
        if (service_->has_notices()) warn(log);
    }
    // Called after the last collective. Returns when the files hold all of the trace.
    void end(const Log &log) const;

private:
    CommTrace(std::shared_ptr<TraceService> service, LoggedComm comm)
        : service_(std::move(service)), tracer_(service_->attach(std::move(comm))) {}
    void warn(const Log &log) const;

    const std::shared_ptr<TraceService> service_;
    const std::shared_ptr<CallTracer> tracer_;
};

} // namespace qccl
