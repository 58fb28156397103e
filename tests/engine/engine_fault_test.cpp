// Tests the engine when something goes wrong on one rank: every rank soon returns the same error,
// and no rank crashes, hangs or returns a wrong result as success.
#include "tests/kit/engine_ranks.hpp"
#include "tests/transport/faulty_transport.hpp"
#include "kernels/cpu/cpu_tiers.hpp"

#include <atomic>
#include <string_view>

using namespace qtest;

namespace {

constexpr uint32_t ranks = 3, injected = 1;

Wrap inject_fault(const Faults &faults) { return inject_at(injected, faults); }

TwinCall small_call(const char *algorithm, const char *codec, uint64_t count) {
    return {.algorithm = algorithm, .codec = *parse_codec(codec), .count = count, .ranks = ranks};
}

Chunking small_cut(const TwinCall &call) {
    const TransportOptions options = Cluster::test_options();
    return {.outbox_bytes = options.outbox_bytes,
            .slots = options.slots,
            .segment_bytes = 1024,
            .lanes = 2,
            .eager_slot_bytes = call.algorithm == "oneshot" ? options.eager_slot_bytes : 0};
}

// Makes one call on all ranks and returns what each rank returned.
std::vector<Result<Bytes>> try_call(Cluster &cluster, const TwinCall &call, const Chunking &cut,
                                    const std::vector<Bytes> &inputs) {
    std::vector<Result<Bytes>> said(call.ranks, Bytes());
    cluster.on_each([&](uint32_t rank) {
        const auto program = compile_for(call, rank, cut);
        CHECK_OK(program);
        said[rank] = cluster.run(rank, call, *program, inputs[rank], false);
    });
    return said;
}

// With messages, no rank can finish without the faulty rank. With eager slots, the other ranks may
// already have all that they need; then their results must be right.
void check_all_say(const TwinCall &call, const std::vector<Result<Bytes>> &said,
                   const std::vector<Bytes> &inputs, Code code) {
    CHECK(!said[injected]);
    const Error &error = said[injected].error();
    CHECK_EQ(static_cast<int>(error.code), static_cast<int>(code));
    CHECK(std::string_view(error.text).find("rank ") != std::string_view::npos);
    for (uint32_t r = 0; r < ranks; r++)
        if (call.algorithm == "oneshot" && said[r])
            CHECK(*said[r] == slow_twin(call, inputs)[r]);
        else
            CHECK(!said[r] && std::string_view(said[r].error().text) == error.text);
}

// Makes the n-th operation of one rank fail, for every n until none fails. Returns how many
// operations there are.
uint64_t fail_each_operation(const TwinCall &call, const Chunking &cut) {
    const auto inputs = make_inputs(call, golden::Kind::spread);
    const auto expected = slow_twin(call, inputs);
    for (uint64_t n = 1;; n++) {
        uint64_t operations = 0;
        const Faults faults{.before = [&](const char *operation) -> Done {
            if (++operations != n) return {};
            return Error::make(Code::system_error, "%s number %d is made to fail", operation,
                               static_cast<int>(n));
        }};
        Cluster cluster(ranks, Cluster::test_options(), inject_fault(faults));
        const auto said = try_call(cluster, call, cut, inputs);
        if (operations < n) {
            for (uint32_t r = 0; r < ranks; r++) CHECK(said[r] && *said[r] == expected[r]);
            return n - 1;
        }
        CHECK(!said[injected]);
        for (uint32_t r = 0; r < ranks; r++) {
            // A rank that had all that it needs before the failure may have finished.
            if (said[r])
                CHECK(*said[r] == expected[r]);
            else
                CHECK(std::string_view(said[r].error().text).find("is made to fail") !=
                      std::string_view::npos);
        }
    }
}

void every_operation_may_fail() {
    const auto each = [](const char *algorithm, const char *codec, uint64_t count) {
        const TwinCall call = small_call(algorithm, codec, count);
        return fail_each_operation(call, small_cut(call));
    };
    // The operations are begin, and in each of 4 segments: 2 chunks are sent and received, summed,
    // and sent and received again.
    CHECK(each("direct", "int8", 3000) >= 1 + 4 * 8);
    CHECK(each("ring", "none", 700) >= 1 + 8);
    // The operations are begin, the own eager slot, and the eager slots of the two other ranks.
    CHECK_EQ(each("oneshot", "int8", 700), 1U + 1 + 2);
    // The operations are begin, memory for the call, and 2 chunks that are sent and received,
    // summed, and sent and received again.
    const TwinCall large = small_call("direct", "minmax:bucket=all", 30000);
    Chunking cut = small_cut(large);
    cut.outbox_bytes = 4096;
    CHECK(fail_each_operation(large, cut) >= 1 + 1 + 8);
}

// The communicator fails during a call over eager slots, when the rank may already have all that it
// needs. The call must fail nevertheless.
void no_call_ends_well_after_a_failure() {
    const TwinCall call = small_call("oneshot", "none", 700);
    std::atomic<uint32_t> posted{0};
    Cluster *all = nullptr;
    const auto fail_late = [&](uint32_t rank, std::unique_ptr<Transport> transport) {
        const Faults faults{.sent = [&, rank](size_t) {
            posted++;
            if (rank != injected) return;
            await([&] { return posted == ranks; });
            all->rank(rank).transport->fail(Error::make(Code::revoked, "that is enough"));
        }};
        return std::make_unique<FaultyTransport>(std::move(transport), faults);
    };
    Cluster cluster(ranks, Cluster::test_options(), fail_late);
    all = &cluster;
    const auto said =
        try_call(cluster, call, small_cut(call), make_inputs(call, golden::Kind::spread));
    CHECK(!said[injected] && said[injected].error().code == Code::revoked);
}

// The number of allocations of this thread, which is a rank, that succeed before one fails.
thread_local uint64_t allocations_left = ~uint64_t{0};

Result<std::byte *> allocate_a_few(Gpu *, size_t bytes) {
    if (allocations_left-- == 0) return Error::make(Code::system_error, "no %zu bytes left", bytes);
    return host_device(best_kernels()).allocate(nullptr, bytes);
}

bool tells_of_memory(const Error &error) {
    const std::string_view text = error.text;
    return text.starts_with("no ") && text.ends_with(" bytes left");
}

// The n-th allocation of one rank fails, for every n until none fails.
void every_allocation_may_fail() {
    for (const char *algorithm : {"direct", "ring", "oneshot"}) {
        TwinCall call = small_call(algorithm, "int8", 700);
        call.type = DataType::float16; // sums of this type need memory with every algorithm
        const auto inputs = make_inputs(call, golden::Kind::spread);
        const auto expected = slow_twin(call, inputs);
        Device device = host_device(best_kernels());
        device.allocate = allocate_a_few;
        bool has_failed = true;
        for (uint64_t n = 0; has_failed; n++) {
            Cluster cluster(ranks);
            EngineRank &rank = cluster.rank(injected);
            rank.engine = std::make_unique<Engine>(*rank.transport, device, EngineOptions{});
            std::vector<Result<Bytes>> said(ranks, Bytes());
            cluster.on_each([&](uint32_t r) {
                const auto program = compile_for(call, r, small_cut(call));
                CHECK_OK(program);
                allocations_left = n;
                said[r] = cluster.run(r, call, *program, inputs[r], false);
            });
            has_failed = !said[injected];
            CHECK(has_failed || n > 0);
            for (uint32_t r = 0; r < ranks; r++)
                CHECK(said[r] ? *said[r] == expected[r] : tells_of_memory(said[r].error()));
        }
    }
}

struct Damage {
    const char *what;
    std::function<void(Bytes &)> inflict;
};

const Damage damages[] = {
    {"magic", [](Bytes &chunk) { chunk[0] ^= std::byte{1}; }},
    {"version", [](Bytes &chunk) { chunk[4] ^= std::byte{2}; }},
    {"codec", [](Bytes &chunk) { chunk[5] = std::byte{1}; }},
    {"type", [](Bytes &chunk) { chunk[6] = std::byte{9}; }},
    {"rounding", [](Bytes &chunk) { chunk[7] = std::byte{7}; }},
    {"bits", [](Bytes &chunk) { chunk[8] = std::byte{4}; }},
    {"bucket", [](Bytes &chunk) { chunk[15] = std::byte{0xFF}; }},
    {"count", [](Bytes &chunk) { chunk[23] = std::byte{0x80}; }},
    {"first index", [](Bytes &chunk) { chunk[24] ^= std::byte{64}; }},
    {"payload bytes", [](Bytes &chunk) { chunk[33] ^= std::byte{1}; }},
    {"scale",
     [](Bytes &chunk) { chunk[chunk.size() - 1] = chunk[chunk.size() - 2] = std::byte{0xFF}; }},
};

Faults damage_once(const std::function<void(Bytes &)> &inflict) {
    const auto is_done = std::make_shared<bool>(false);
    return {.damage = [=](Bytes &bytes) {
        if (!std::exchange(*is_done, true)) inflict(bytes);
    }};
}

void damaged_chunks_are_refused_by_all() {
    for (const char *algorithm : {"direct", "ring", "oneshot"})
        for (const Damage &damage : damages) {
            const TwinCall call = small_call(algorithm, "int8", 3000);
            Cluster cluster(ranks, Cluster::test_options(),
                            inject_fault(damage_once(damage.inflict)));
            const auto inputs = make_inputs(call, golden::Kind::spread);
            check_all_say(call, try_call(cluster, call, small_cut(call), inputs), inputs,
                          Code::damaged_data);
        }
}

void truncated_chunks_are_refused_by_all() {
    for (const char *algorithm : {"direct", "oneshot"})
        for (const size_t bytes : {0, 1, 63, 64, 65, 300}) {
            const TwinCall call = small_call(algorithm, "int8", 3000);
            const auto cut_off = [=](Bytes &chunk) { chunk.resize(bytes); };
            Cluster cluster(ranks, Cluster::test_options(), inject_fault(damage_once(cut_off)));
            const auto inputs = make_inputs(call, golden::Kind::spread);
            check_all_say(call, try_call(cluster, call, small_cut(call), inputs), inputs,
                          Code::damaged_data);
        }
}

// A slot that holds more than the call's chunks was not written for this call, even if all that
// the rank reads is there.
void overlong_eager_slots_are_refused_by_all() {
    for (const Collective collective :
         {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter})
        for (const char *codec : {"none", "int8"})
            for (const size_t more : {1, 64}) {
                TwinCall call = small_call("oneshot", codec, 300);
                call.collective = collective;
                // The injected rank reads rank 0's slot first, which ends with the last chunk.
                const auto lengthen = [=](Bytes &slot) { slot.resize(slot.size() + more); };
                Cluster cluster(ranks, Cluster::test_options(),
                                inject_fault(damage_once(lengthen)));
                const auto inputs = make_inputs(call, golden::Kind::spread);
                check_all_say(call, try_call(cluster, call, small_cut(call), inputs), inputs,
                              Code::damaged_data);
            }
}

void a_flipped_bit_breaks_the_checksum() {
    const TwinCall call = small_call("direct", "int8", 3000);
    const auto flip = [](Bytes &chunk) { chunk[header_bytes + 5] ^= std::byte{4}; };
    Cluster cluster(ranks, Cluster::test_options(), inject_fault(damage_once(flip)));
    Chunking cut = small_cut(call);
    cut.has_checksums = true;
    const auto inputs = make_inputs(call, golden::Kind::spread);
    check_all_say(call, try_call(cluster, call, cut, inputs), inputs, Code::damaged_data);
}

void chunks_without_a_checksum_are_refused_where_it_is_asked_for() {
    const TwinCall call = small_call("direct", "none", 3000);
    const auto drop = [](Bytes &chunk) {
        chunk[9] = std::byte{0};
        std::fill(chunk.begin() + 56, chunk.begin() + 60, std::byte{0});
    };
    Cluster cluster(ranks, Cluster::test_options(), inject_fault(damage_once(drop)));
    Chunking cut = small_cut(call);
    cut.has_checksums = true;
    const auto inputs = make_inputs(call, golden::Kind::spread);
    check_all_say(call, try_call(cluster, call, cut, inputs), inputs, Code::damaged_data);
}

// The transport holds messages back at random, so that they come late and in another order.
void order_of_arrival_does_not_show() {
    for (const char *algorithm : {"direct", "ring"}) {
        TwinCall call = small_call(algorithm, "int4:round=stochastic", 9000);
        uint64_t draws = 0;
        const Faults faults{
            .holds = [&](uint32_t, MessageTag) { return splitmix64(draws++) % 4 != 0; }};
        Cluster cluster(ranks, Cluster::test_options(), inject_fault(faults));
        const auto inputs = make_inputs(call, golden::Kind::spread);
        const auto outputs = cluster.run_all(call, {small_cut(call)}, inputs, false);
        CHECK(outputs[0] == slow_twin(call, inputs));
    }
}

void a_lost_message_costs_no_more_than_the_timeout() {
    const TwinCall call = small_call("direct", "int8", 3000);
    bool is_lost = false;
    const Faults faults{.loses = [&](uint32_t, MessageTag tag) {
        return tag.instance == 2 && !std::exchange(is_lost, true);
    }};
    Cluster cluster(ranks, Cluster::test_options(), inject_fault(faults));
    const auto inputs = make_inputs(call, golden::Kind::spread);
    const auto start = Clock::now();
    cluster.timeout = 300ms;
    const auto said = try_call(cluster, call, small_cut(call), inputs);
    CHECK(Clock::now() - start < 10s);
    CHECK(!said[injected] && said[injected].error().code == Code::timeout);
}

// The ranks compile programs for different counts. No rank may compute with data that another rank
// sent for another call.
void ranks_that_disagree_all_say_so() {
    for (const char *algorithm : {"direct", "oneshot"}) {
        Cluster cluster(2);
        std::vector<Error> errors(2);
        cluster.on_each([&](uint32_t rank) {
            TwinCall call = small_call(algorithm, "int8", rank == 0 ? 500 : 501);
            call.ranks = 2;
            const auto program = compile_for(call, rank, small_cut(call));
            CHECK_OK(program);
            const auto said = cluster.run(rank, call, *program, Bytes(send_count(call) * 4), false);
            CHECK(!said);
            errors[rank] = said.error();
        });
        for (const Error &error : errors) {
            CHECK(error.code == Code::mismatch);
            CHECK(std::string_view(error.text).find("501") != std::string_view::npos);
            CHECK_EQ(std::string_view(error.text), std::string_view(errors[0].text));
        }
    }
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(every_operation_may_fail),
        QTEST(no_call_ends_well_after_a_failure),
        QTEST(every_allocation_may_fail),
        QTEST(damaged_chunks_are_refused_by_all),
        QTEST(truncated_chunks_are_refused_by_all),
        QTEST(overlong_eager_slots_are_refused_by_all),
        QTEST(a_flipped_bit_breaks_the_checksum),
        QTEST(chunks_without_a_checksum_are_refused_where_it_is_asked_for),
        QTEST(order_of_arrival_does_not_show),
        QTEST(a_lost_message_costs_no_more_than_the_timeout),
        QTEST(ranks_that_disagree_all_say_so),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
