// What a communicator writes down about its calls for the user. No call depends on it. Creation and
// Comm use it.
// CommTrace is a communicator's part in its rank's trace and call log (QCCL_TRACE,
// QCCL_RECORD_CALLS). A communicator made by split or shrink writes to the files of its parent's
// rank.
// ChoiceReport logs the planner's choices (QCCL_DEBUG=info).
// CallAudit (QCCL_AUDIT) encodes samples of a communicator's calls beside the calls. The findings
// are written when the last communicator ends that was made from the same one; they stay on this
// rank. An error ends the audit and fails no call.
// RuleUse records which rules of QCCL_CODEC, QCCL_ALGO and QCCL_PLAN_FILE have decided a call of
// this process, so that unused rules can be reported. Communicators that read the same rules share
// a record as long as one of them lives, because a rule is often for some communicators only. Any
// thread may call RuleUse; join and leave block each other for a moment.
#pragma once

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/settings.hpp"
#include "comm/call_programs.hpp"
#include "engine/run/call_sampler.hpp"
#include "plan/call_policy.hpp"
#include "plan/sampled_error.hpp"
#include "trace/trace_service.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

namespace qccl {

// ---- Trace

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

// ---- Choices of the planner

struct CommParts;

// What a call's own config names.
struct CallNames {
    bool codec = false, algorithm = false;
};

// Logs the choices of one communicator, each once: calls that differ in their arguments but for
// buffers, tags and streams are different shapes. Used inside the communicator's entry guard. It
// plans the call a second time, so that the log can say why, and does not block.
class ChoiceReport {
public:
    // `program` is that of `key`.
    void tell(const CommParts &parts, const ProgramKey &key, const Program &program,
              const CallNames &names);

private:
    std::unordered_set<uint64_t> told_; // hashes of shapes
};

// ---- Audit

// Parses the list of codecs in QCCL_AUDIT. Keys that do not change how values are encoded (min,
// guard) are dropped. An error (invalid_argument) names the setting.
Result<std::vector<Codec>> parse_audited_codecs(const std::string &text);
// Checks QCCL_AUDIT and QCCL_AUDIT_FILE; returns invalid_argument if one of them is not valid.
Done check_audit(const Settings &settings);

// The findings of all communicators of a rank. Any thread may use it.
class AuditCollector {
public:
    AuditCollector(AuditHead head, std::string path, std::shared_ptr<const Log> log)
        : head_(std::move(head)), path_(std::move(path)), log_(std::move(log)) {}
    // Writes the findings: rank 0 of the first communicator prints a table to the log, and every
    // rank writes its file if it has a path.
    ~AuditCollector();
    AuditCollector(const AuditCollector &) = delete;

    const std::vector<Codec> &codecs() const { return head_.codecs; }
    // Adds what one communicator has found; `other_calls` counts the calls that no row covers.
    void add(std::vector<AuditRow> rows, uint64_t other_calls);

private:
    using Key = std::pair<std::string, AuditedShape>;
    void write() const;

    std::mutex mutex_;
    AuditHead head_;
    const std::string path_;
    const std::shared_ptr<const Log> log_;
    std::map<Key, AuditRow> rows_;
};

// The audit of one communicator. The thread that makes the communicator's calls uses it.
class CallAudit {
public:
    // Returns null if nothing is audited. `parts` must outlive the audit.
    static std::unique_ptr<CallAudit> create(const Settings &settings, const TraceOrigin &origin,
                                             const CommParts &parts);
    // Adds the findings to the collector.
    ~CallAudit();
    CallAudit(const CallAudit &) = delete;

    // Called around each call; `after` only if the call has succeeded.
    void before(const Program &program, const Call &call);
    void after(const Program &program, const Call &call);

    const std::shared_ptr<AuditCollector> &collector() const { return collector_; }

private:
    // Calls of further shapes and tags are counted, but not sampled.
    static constexpr size_t most_entries = 4096;

    struct AuditedCall {
        AuditEntry entry;
        SampleTurns turns;
    };
    // Finds the entry of a repeated call without comparing shapes.
    struct AuditLookup {
        uint64_t program = 0, tag = 0;
        bool is_set = false;
        AuditedCall *watched = nullptr; // null: not audited
    };
    CallAudit(std::shared_ptr<AuditCollector> collector, std::string name, const CommParts &parts);
    AuditedCall *find(const Program &program, uint64_t tag);
    AuditedCall *add(const Program &program, uint64_t tag);
    Done read_input(const Program &program, const Call &call);
    Done read_result(const Program &program, const Call &call);
    std::vector<AuditRow> rows() const;
    SampleSize size_of(const Work &work) const;

    const std::shared_ptr<AuditCollector> collector_;
    const std::string name_; // of the communicator, as shown to the user
    const CommParts &parts_;
    const uint64_t divisor_, unit_;
    CallSampler sampler_;
    std::map<AuditedShape, AuditedCall> watched_;
    std::array<AuditLookup, 64> known_;
    AuditedCall *sampled_ = nullptr; // of the call in progress; null: the call is not sampled
    std::vector<SampledLoss> input_loss_, sum_loss_;
    uint64_t other_calls_ = 0;
    bool is_over_ = false; // after an error, such as a GPU that cannot be read
};

// ---- Use of rules

class RuleUse {
public:
    // For a communicator of `size` ranks, in which this rank is `rank`. Returns null if no rule has
    // conditions: a rule for all calls needs no report.
    static std::shared_ptr<RuleUse> join(const EnvRules &rules, uint32_t rank, uint32_t size);

    // Notes a call that `rule` has decided; null: no rule has.
    void note(const Rule *rule) {
        if (!has_calls_.load(std::memory_order_relaxed))
            has_calls_.store(true, std::memory_order_relaxed);
        if (rule) mark(*rule);
    }
    // Called when a communicator that joined ends; null does nothing. For the last one, if calls
    // were made and this process speaks for its job, returns sentences about the rules that have
    // decided no call.
    static std::vector<std::string> leave(std::shared_ptr<RuleUse> use);

private:
    struct WatchedRule {
        const RuleSource *source = nullptr;
        uint32_t number = 0;
        std::string text;
        std::atomic<bool> is_used{false};
    };
    explicit RuleUse(const EnvRules &rules);
    void mark(const Rule &rule);
    std::vector<std::string> report() const;

    std::vector<std::unique_ptr<WatchedRule>> watched_; // sorted by source and number
    std::atomic<bool> has_calls_{false};
    // These describe the largest communicator that joined. One process speaks for a job: the one
    // that has that communicator's rank 0.
    uint32_t size_ = 0, lowest_rank_ = 0;
};

} // namespace qccl
