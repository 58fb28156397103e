// Implements the process-wide record of rules that have decided calls.
#include "api/rule_use.hpp"

#include "api/fork_detector.hpp"
#include "base/short_text.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include <pthread.h>

namespace qccl {

namespace {

// Communicators do not know each other, so the process keeps in one place what they share.
struct Known {
    std::mutex mutex;
    std::map<std::pair<uint64_t, uint64_t>, std::weak_ptr<RuleUse>> uses; // by epoch and hash
};

Known &known() {
    // Never destroyed, because communicators may end while the process does.
    static Known *const all = [] {
        pthread_atfork([] { known().mutex.lock(); }, [] { known().mutex.unlock(); },
                       [] { known().mutex.unlock(); });
        return new Known;
    }();
    return *all;
}

// The position of a Rule or of a Watched among all rules.
template <class Each> std::pair<int, uint32_t> place_of(const Each &rule) {
    return {rule.source->order, rule.number};
}

std::string shown(std::string_view text) {
    constexpr size_t most_shown = 120;
    return '"' + shortened(text, most_shown) + '"';
}

} // namespace

RuleUse::RuleUse(const EnvRules &rules) {
    (void)for_each_rule(rules, [this](const Rule &rule) -> Done {
        if (rule.selector.is_unconditional()) return {};
        auto watched = std::make_unique<Watched>();
        watched->source = rule.source;
        watched->number = rule.number;
        watched->text = rule.text;
        watched_.push_back(std::move(watched));
        return {};
    });
    std::sort(watched_.begin(), watched_.end(),
              [](const auto &a, const auto &b) { return place_of(*a) < place_of(*b); });
}

std::shared_ptr<RuleUse> RuleUse::join(const EnvRules &rules, uint32_t rank, uint32_t size) {
    std::shared_ptr<RuleUse> use(new RuleUse(rules));
    if (use->watched_.empty()) return nullptr;
    std::string text;
    for (const auto &watched : use->watched_)
        text.append(watched->source->setting).append(watched->text).append("\n");
    Known &all = known();
    const std::lock_guard guard(all.mutex);
    std::erase_if(all.uses, [](const auto &each) { return each.second.expired(); });
    // The epoch keeps a forked child from using its parent's record.
    std::weak_ptr<RuleUse> &held = all.uses[{current_epoch(), hash_text(text)}];
    if (auto sharing = held.lock())
        use = std::move(sharing);
    else
        held = use;
    if (size > use->size_ || (size == use->size_ && rank < use->lowest_rank_))
        use->lowest_rank_ = rank;
    use->size_ = std::max(use->size_, size);
    return use;
}

void RuleUse::mark(const Rule &rule) {
    const auto found = std::ranges::lower_bound(
        watched_, place_of(rule), {}, [](const auto &watched) { return place_of(*watched); });
    if (found == watched_.end()) return;
    if (place_of(**found) == place_of(rule))
        (*found)->is_used.store(true, std::memory_order_relaxed);
}

std::vector<std::string> RuleUse::leave(std::shared_ptr<RuleUse> use) {
    if (!use) return {};
    const std::lock_guard guard(known().mutex); // no communicator joins meanwhile
    const bool is_last = use.use_count() == 1;
    std::vector<std::string> sentences;
    if (is_last && use->lowest_rank_ == 0 && use->has_calls_.load(std::memory_order_relaxed))
        sentences = use->report();
    use.reset();
    return sentences;
}

std::vector<std::string> RuleUse::report() const {
    std::vector<std::string> sentences;
    uint32_t unused_lines = 0;
    const Watched *first_line = nullptr;
    for (const auto &watched : watched_) {
        if (watched->is_used.load(std::memory_order_relaxed)) continue;
        if (watched->source == &plan_setting) {
            if (unused_lines++ == 0) first_line = watched.get();
            continue;
        }
        sentences.push_back(std::string(watched->source->setting) + ": item " +
                            std::to_string(watched->number) + ", " + shown(watched->text) +
                            ", has decided no call of this process");
    }
    if (unused_lines == 1)
        sentences.push_back(std::string(plan_setting.setting) + ": line " +
                            std::to_string(first_line->number) + ", " + shown(first_line->text) +
                            ", has decided no call of this process");
    else if (unused_lines > 1)
        sentences.push_back(std::string(plan_setting.setting) + ": " +
                            std::to_string(unused_lines) +
                            " lines have decided no call of this process, the first is line " +
                            std::to_string(first_line->number) + ", " + shown(first_line->text));
    return sentences;
}

} // namespace qccl
