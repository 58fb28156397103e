// QCCL_AUDIT: encodes samples of a communicator's calls beside the calls. The findings are written
// when the last communicator ends that was made from the same one; they stay on this rank. No call
// depends on the audit: an error ends the audit and fails no call.
#pragma once

#include "api/comm_trace.hpp"
#include "base/log.hpp"
#include "engine/call_sampler.hpp"
#include "plan/audit.hpp"

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace qccl {

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

struct CommParts;

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

    struct Watched {
        AuditEntry entry;
        SampleTurns turns;
    };
    // Finds the entry of a repeated call without comparing shapes.
    struct Known {
        uint64_t program = 0, tag = 0;
        bool is_set = false;
        Watched *watched = nullptr; // null: not audited
    };
    CallAudit(std::shared_ptr<AuditCollector> collector, std::string name, const CommParts &parts);
    Watched *find(const Program &program, uint64_t tag);
    Watched *add(const Program &program, uint64_t tag);
    Done read_input(const Program &program, const Call &call);
    Done read_result(const Program &program, const Call &call);
    std::vector<AuditRow> rows() const;
    SampleSize size_of(const Work &work) const;

    const std::shared_ptr<AuditCollector> collector_;
    const std::string name_; // of the communicator, as shown to the user
    const CommParts &parts_;
    const uint64_t divisor_, unit_;
    CallSampler sampler_;
    std::map<AuditedShape, Watched> watched_;
    std::array<Known, 64> known_;
    Watched *sampled_ = nullptr; // of the call in progress; null: the call is not sampled
    std::vector<SampledLoss> input_loss_, sum_loss_;
    uint64_t other_calls_ = 0;
    bool is_over_ = false; // after an error, such as a GPU that cannot be read
};

} // namespace qccl
