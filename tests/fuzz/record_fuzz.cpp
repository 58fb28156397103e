// Fuzzes trace/rank_record: a file with any content is read without harm, and what is read can be
// shown. Also tries valid heads with anything behind them.
#include "trace/rank_record.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

using namespace qccl;

static void require(bool condition, const char *what) {
    if (condition) return;
    fprintf(stderr, "%s\n", what);
    abort();
}

static void show(std::span<const std::byte> file) {
    const auto records = parse_records(file);
    if (!records) return;
    std::vector<RankState> states;
    for (const RankRecord &record : *records) {
        require(record.calls.size() <= record.head.calls, "more calls than were kept");
        require(std::is_sorted(record.calls.begin(), record.calls.end(),
                               [](const auto &a, const auto &b) { return a.call < b.call; }),
                "calls out of order");
        for (const CallDescriptor &call : record.calls)
            require(!describe(call).empty(), "a call without words");
        states.push_back(record.rank_state(record.state.since_ns));
        states.back().is_remote = record.head.zero & 1;
        require(!describe(states.back()).empty(), "a state without words");
    }
    (void)first_difference(*records);
    const auto sentences = summarize(states);
    require(sentences.size() <= states.size(), "more sentences than ranks");
    require(one_sentence(sentences, 200).size() <= 200, "a sentence that is too long");
}

// Returns small records whose heads and checks are valid.
static std::vector<std::byte> repaired(std::span<const std::byte> bytes) {
    RecordShape shape{.calls = 1 + static_cast<uint32_t>(bytes.size() % 4), .local_ranks = 2};
    std::vector<std::byte> file;
    for (uint32_t rank = 0; rank < 3; rank++) {
        std::vector<std::byte> record(shape.bytes());
        const size_t share = std::min(bytes.size(), record.size());
        std::copy_n(bytes.begin(), share, record.begin());
        bytes = bytes.subspan(share / 2);
        auto &head = *reinterpret_cast<RecordHead *>(record.data());
        head.magic = RecordHead::our_magic;
        head.version = RecordHead::our_version;
        head.calls = shape.calls;
        head.local_ranks = shape.local_ranks;
        head.bytes = shape.bytes();
        head.ranks = std::max(head.ranks, 1U);
        head.rank %= head.ranks;
        auto *const calls =
            reinterpret_cast<RecordedCall *>(record.data() + RecordShape::calls_offset);
        for (uint32_t i = 0; i < shape.calls; i++)
            calls[i].check = RecordedCall::check_of(calls[i].call, calls[i].call.hash());
        file.insert(file.end(), record.begin(), record.end());
    }
    return file;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    const auto file = std::as_bytes(std::span(data, bytes));
    show(file);
    show(repaired(file));
    return 0;
}
