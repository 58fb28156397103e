#include "tests/kit/engine_ranks.hpp"

#include "kernels/cpu/cpu_tiers.hpp"

#include <algorithm>
#include <utility>

namespace qtest {
namespace {

// A buffer between two guards, at an address without vector alignment.
class GuardedBuffer {
public:
    // Uses the start of `memory`, which must be large enough, or memory of its own if `memory` is
    // empty.
    GuardedBuffer(size_t bytes, size_t offset, std::span<std::byte> memory = {})
        : own_(memory.empty() ? guard + offset + bytes + guard : 0),
          held_(memory.empty() ? std::span(own_) : memory.first(guard + offset + bytes + guard)),
          bytes_(bytes), offset_(guard + offset) {
        std::fill(held_.begin(), held_.end(), filler);
    }
    // Overwrites the buffer, as a caller may as soon as its call has returned.
    void scribble() { std::fill(held_.begin(), held_.end(), std::byte{0xDB}); }
    std::byte *data() { return held_.data() + offset_; }
    std::span<const std::byte> content() const { return held_.subspan(offset_, bytes_); }
    bool is_guarded() const {
        const auto is_filler = [](std::byte b) { return b == filler; };
        return std::all_of(held_.begin(), held_.begin() + static_cast<long>(offset_), is_filler) &&
               std::all_of(held_.end() - guard, held_.end(), is_filler);
    }

private:
    static constexpr size_t guard = 128;
    static constexpr std::byte filler{0xE7};
    Bytes own_;
    std::span<std::byte> held_;
    size_t bytes_, offset_;
};

} // namespace

Arena::Arena(Transport &transport) {
    auto file = create_shared_memory(bytes);
    CHECK_OK(file);
    file_ = std::move(*file);
    auto mapping = Mapping::shared(file_.number(), bytes);
    CHECK_OK(mapping);
    mapping_ = std::move(*mapping);
    const auto described = describe(file_.number());
    CHECK_OK(described);
    transport.windows().expose({.base = mapping_.base(), .file = *described});
}

void EngineRank::open_local_resources(uint32_t rank) {
    Device device = host_device(best_kernels());
    device.kernels = available_kernels()[rank % available_kernels().size()];
    const EngineOptions options{.streaming_bytes = rank % 2 == 0 ? 0 : ~uint64_t{0}};
    engine = std::make_unique<Engine>(*transport, device, options);
}

Result<Bytes> EngineRank::run(const TwinCall &call, uint32_t rank, const Program &program,
                              const Bytes &input, bool in_place, std::chrono::nanoseconds timeout,
                              const CallFeedback *feedback) {
    const size_t value = type_bytes(call.type);
    const size_t send_bytes = send_count(call) * value;
    const size_t recv_bytes = recv_count(call, rank) * value;
    const SharedBuffer shared = in_place_buffer(call, rank);
    const size_t offset = rank % 3 * value;
    const auto half = [&](size_t number) {
        return arena ? arena->half(number) : std::span<std::byte>();
    };
    GuardedBuffer send(in_place ? shared.count * value : send_bytes, offset, half(0));
    GuardedBuffer recv(in_place ? 0 : recv_bytes, offset, half(1));
    std::byte *from = send.data(), *to = recv.data();
    if (in_place) {
        from = send.data() + shared.send * value;
        to = send.data() + shared.recv * value;
    }
    std::copy(input.begin(), input.end(), from);
    const Done done = engine->run(program, {.send = from,
                                            .recv = to,
                                            .number = call.number,
                                            .noise_seed = call.seed,
                                            .timeout = timeout,
                                            .feedback = feedback});
    if (done) {
        CHECK(send.is_guarded() && recv.is_guarded());
        if (!in_place || recv_bytes == 0)
            CHECK(std::ranges::equal(std::span(from, send_bytes), input));
    }
    Bytes received(to, to + recv_bytes);
    send.scribble();
    recv.scribble();
    QCCL_TRY(done);
    return received;
}

std::vector<Bytes> make_inputs(const TwinCall &call, golden::Kind kind) {
    const size_t bytes = send_count(call) * type_bytes(call.type);
    const Bytes all = golden::make_input(call.type, kind, send_count(call) * call.ranks);
    std::vector<Bytes> inputs;
    for (uint32_t r = 0; r < call.ranks; r++)
        inputs.emplace_back(all.begin() + static_cast<long>(r * bytes),
                            all.begin() + static_cast<long>((r + 1) * bytes));
    return inputs;
}

std::vector<RankLocation> spots_on(const std::vector<uint32_t> &hosts) {
    std::vector<RankLocation> spots;
    for (const uint32_t host : hosts) spots.push_back({.node = 0, .host = host, .rack = 0});
    return spots;
}

TransportOptions on_hosts(const std::vector<uint32_t> &hosts) {
    TransportOptions options = Cluster::test_options();
    if (std::ranges::all_of(hosts, [&](uint32_t host) { return host == hosts.front(); }))
        return options;
    options.hosts = hosts;
    options.remote = remote_options(memory_network::module);
    return options;
}

Result<Program> compile_for(const TwinCall &call, uint32_t rank, const Chunking &cut,
                            Feedback feedback) {
    Team team{.size = call.ranks, .rank = rank, .root = call.root};
    const auto places =
        make_rank_topology(call.spots, call.rings); // null: all in one place, by rank
    team.places = places.get();
    const auto algorithm = parse_algorithm(call.algorithm);
    CHECK_OK(algorithm);
    QCCL_TRY(const Schedule author, emit(*algorithm, call.collective, team));
    team.places = nullptr;
    return compile(author,
                   {.collective = call.collective,
                    .type = call.type,
                    .op = call.op,
                    .codec = call.codec,
                    .inner_codec = call.inner_codec,
                    .count = call.count,
                    .feedback = feedback,
                    .team = team,
                    .algorithm = spec(*algorithm)},
                   cut);
}

Cluster::Cluster(uint32_t size, TransportOptions options, const Wrap &wrap, const Shows &shows)
    : meeting_(size), threads_(size), ranks_(size) {
    on_each([&](uint32_t rank) {
        TransportOptions mine = options;
        mine.rank = rank;
        mine.size = size;
        auto made = create_inproc_transport(mine, [&](const void *data, void *all, size_t bytes) {
            return meeting_.all_gather(rank, data, all, bytes);
        });
        CHECK_OK(made);
        ranks_[rank].transport = wrap ? wrap(rank, std::move(*made)) : std::move(*made);
        if (shows && shows(rank))
            ranks_[rank].arena = std::make_unique<Arena>(*ranks_[rank].transport);
        ranks_[rank].open_local_resources(rank);
    });
}

Cluster::~Cluster() = default;

TransportOptions Cluster::test_options() {
    TransportOptions options;
    options.outbox_bytes = size_t{4} << 20;
    options.slots = 256;
    options.eager_slot_bytes = size_t{16} << 10;
    return options;
}

void Cluster::on_each(const std::function<void(uint32_t rank)> &body) {
    threads_.run([&](size_t rank) { body(static_cast<uint32_t>(rank)); });
}

Result<Bytes> Cluster::run(uint32_t rank, const TwinCall &call, const Program &program,
                           const Bytes &input, bool in_place, const CallFeedback *feedback) {
    auto received = ranks_[rank].run(call, rank, program, input, in_place, timeout, feedback);
    if (received) return received;
    // Records the engine's error in the transport, as a communicator does.
    Transport &transport = *ranks_[rank].transport;
    if (!transport.failure()) transport.fail(received.error());
    return *transport.failure();
}

std::vector<std::vector<Bytes>> Cluster::run_all(TwinCall &call, const std::vector<Chunking> &cuts,
                                                 const std::vector<Bytes> &inputs, bool in_place) {
    std::vector<std::vector<Bytes>> outputs(cuts.size(), std::vector<Bytes>(size()));
    on_each([&](uint32_t rank) {
        TwinCall mine = call;
        mine.number = next_call_;
        for (size_t i = 0; i < cuts.size(); i++, mine.number++) {
            const auto program = compile_for(mine, rank, cuts[i]);
            CHECK_OK(program);
            const auto output = run(rank, mine, *program, inputs[rank], in_place);
            CHECK_OK(output);
            outputs[i][rank] = *output;
        }
    });
    call.number = next_call_;
    next_call_ += cuts.size();
    return outputs;
}

} // namespace qtest
