// The notices of codecs, choices and rules that a communicator logs once each (Comm::tell and its
// siblings).
#include "comm/comm.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace qccl {

void Comm::tell(const CodecChoice &choice) {
    if (!speaks() || !choice.passed_over) return;
    if (const std::string text = choice.notice(); is_new(text))
        parts_.log->info("%s", text.c_str());
}

void Comm::tell(const Codec &asked, const Program &program) {
    const Codec &codec = program.work.codec;
    if (!program.notice.empty() && team_.rank == 0 && is_new(spec(asked)))
        parts_.log->warn("codec %s: %s; such calls go lossless", spec(asked).c_str(),
                         program.notice.c_str());
    if (!codec.loses() || has_told_lossy_ || !speaks()) return;
    has_told_lossy_ = true;
    parts_.log->info("first lossy call of this communicator: codec %s", spec(codec).c_str());
}

void Comm::tell_choice(const ProgramKey &key, const Program &program, const CallNames &names) {
    if (speaks()) choices_.tell(parts_, key, program, names);
}

// Rank 0 logs a choice for all ranks, because ranks that choose differently fail.
bool Comm::speaks() const { return team_.rank == 0 && parts_.log->wants(LogLevel::info); }

bool Comm::is_new(const std::string &text) {
    if (std::find(told_.begin(), told_.end(), text) != told_.end()) return false;
    told_.push_back(text);
    return true;
}

void Comm::tell_unused_rules() {
    for (const std::string &sentence : RuleUse::leave(std::move(rule_use_)))
        parts_.log->warn("%s", sentence.c_str());
}

} // namespace qccl
