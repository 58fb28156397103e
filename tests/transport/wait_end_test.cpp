// Tests transport/shared_transport: a wait is over when what the rank waited for has come. Each
// case makes one kind of wait last until the flight record shows the wait, and then looks whether
// the record still shows it.
#include "tests/kit/temporary_folder.hpp"
#include "transport_ways.hpp"

#include "trace/rank_record.hpp"

#include <filesystem>

#include <fcntl.h>

using namespace qccl;
using namespace qtest;

namespace {

namespace fs = std::filesystem;

// Maps the only file of the folder, which has the records of all ranks of this process. It exists
// once the transports have been created.
Mapping map_record(const TemporaryFolder &folder) {
    const fs::directory_entry file = *fs::directory_iterator(folder.path());
    const FileDescriptor opened(open(file.path().c_str(), O_RDWR | O_CLOEXEC));
    auto mapped = Mapping::shared(opened.number(), file.file_size());
    CHECK_OK(mapped);
    return std::move(*mapped);
}

// Returns what rank 0's record says that rank 0 waits for; nothing if it does not wait.
std::optional<WaitPhase> shown_wait(const Mapping &record) {
    auto &state = *reinterpret_cast<RecordedState *>(record.base() + RecordShape::state_offset);
    if (std::atomic_ref(state.waits).load(std::memory_order_acquire) == 0) return std::nullopt;
    return static_cast<WaitPhase>(std::atomic_ref(state.phase).load(std::memory_order_acquire));
}

// ---- A network that sends when it is told to

std::atomic<bool> is_sending_held{false}; // what rank 0 posts is not sent

NetworkModule held_module() {
    NetworkModule module = memory_network::module;
    module.progress = [](NetworkEnd *end) {
        const bool is_held = end->is_slow && is_sending_held;
        return is_held ? memory_network::progress_without_sent(end) : memory_network::progress(end);
    };
    return module;
}

using Act = Done (*)(Transport &transport);

// Rank 0 waits in `act`. Rank 1 calls `help` when rank 0's record shows that wait. Both call
// `before` first, if there is one.
void check_wait(Kind kind, WaitPhase phase, Act act, Act help, Act before = nullptr) {
    static const NetworkModule module = held_module();
    const TemporaryFolder folder;
    TransportOptions options = small_options();
    options.record.folder = folder.path();
    run_ranks(
        kind, 2,
        [&](const Rank &plain) {
            Rank rank = plain;
            if (!is_one_host(kind)) rank.options.remote.network = &module;
            const auto transport = create(rank);
            rank.meeting.barrier();
            const Mapping record = map_record(folder);
            if (rank.rank == 0) {
                if (!is_one_host(kind)) end_of(0).is_slow = true;
                is_sending_held = true;
            }
            if (before) CHECK_OK(before(*transport));
            std::optional<WaitPhase> shown_after;
            if (rank.rank == 0) {
                CHECK_OK(act(*transport));
                shown_after = shown_wait(record);
            } else {
                await([&] { return shown_wait(record) == phase; });
                is_sending_held = false;
                CHECK_OK(help(*transport));
            }
            rank.meeting.barrier();
            CHECK(!shown_after);
        },
        options);
}

Done begin_first(Transport &transport) { return begin(transport, call_number(1), 30s); }

Done post_eager(Transport &transport) {
    QCCL_TRY(std::byte *const slot, transport.eager_slot(8));
    std::memset(slot, 1, 8);
    transport.post_eager(8);
    return {};
}

// ---- The waits

void a_meeting_ends() {
    const Act meet = [](Transport &transport) -> Done {
        QCCL_TRY(begin_first(transport));
        return transport.await_all();
    };
    check_wait(Kind::inproc, WaitPhase::meeting, meet, meet);
}

void a_wait_for_an_eager_slot_ends() {
    check_wait(
        Kind::inproc, WaitPhase::eager,
        [](Transport &transport) -> Done {
            QCCL_TRY(begin_first(transport));
            QCCL_TRY(post_eager(transport));
            return outcome(transport.await_eager(1));
        },
        [](Transport &transport) -> Done {
            QCCL_TRY(begin_first(transport));
            return post_eager(transport);
        });
}

void a_wait_for_readers_ends() {
    check_wait(
        Kind::inproc, WaitPhase::readers,
        [](Transport &transport) -> Done {
            QCCL_TRY(begin_first(transport));
            QCCL_TRY(transport.end());
            return transport.await_ended(1);
        },
        [](Transport &transport) -> Done {
            QCCL_TRY(begin_first(transport));
            return transport.end();
        });
}

void a_wait_for_messages_to_be_sent_ends() {
    check_wait(
        Kind::inproc_apart, WaitPhase::network,
        [](Transport &transport) -> Done {
            QCCL_TRY(begin_first(transport));
            QCCL_TRY(const MessageView view, free_view(transport));
            QCCL_TRY(send(transport, 1, view));
            return transport.end();
        },
        [](Transport &transport) -> Done {
            QCCL_TRY(begin_first(transport));
            QCCL_TRY(const MessageView view, receive(transport, 0));
            transport.release(view);
            return transport.confirm_calls(30s); // tells rank 0 that the message has been read
        });
}

// The slot of an exchange is used again after as many exchanges as there are slots.
void a_wait_for_an_eager_slot_to_be_sent_ends() {
    const Act use_all_slots = [](Transport &transport) -> Done {
        QCCL_TRY(begin_first(transport));
        for (uint32_t slot = 0; slot < eager_slots_kept; slot++) {
            QCCL_TRY(post_eager(transport));
            QCCL_TRY(transport.await_eager(1 - transport.rank()));
        }
        return {};
    };
    check_wait(
        Kind::inproc_apart, WaitPhase::network,
        [](Transport &transport) { return outcome(transport.eager_slot(8)); },
        [](Transport &) { return Done(); }, use_all_slots);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(a_meeting_ends),
        QTEST(a_wait_for_an_eager_slot_ends),
        QTEST(a_wait_for_readers_ends),
        QTEST(a_wait_for_messages_to_be_sent_ends),
        QTEST(a_wait_for_an_eager_slot_to_be_sent_ends),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
