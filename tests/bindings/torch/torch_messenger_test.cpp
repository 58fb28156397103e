// Tests the messages of the backend for torch.distributed, which use nothing of torch, between
// ranks that are threads of this process and meet in a store in memory, and what ranks know of each
// other's processes.
#include "tests/kit/qtest.hpp"
#include "tests/bindings/torch/refused_threads.hpp"
#include "tests/kit/rank_threads.hpp"

#include "core/failure.hpp"
#include "core/process_identity.hpp"
#include "messages/messenger.hpp"

#include <algorithm>
#include <atomic>
#include <future>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

using namespace qccl_torch;
using std::chrono::seconds;

namespace {

struct SharedKeys {
    std::mutex mutex;
    std::map<std::string, std::string> values;
    std::atomic<bool> is_broken{false};
};

class MemoryStore final : public GroupStore {
public:
    explicit MemoryStore(std::shared_ptr<SharedKeys> keys) : keys_(std::move(keys)) {}
    void set(const std::string &key, const std::string &value) override {
        const std::lock_guard lock(keys_->mutex);
        keys_->values[key] = value;
    }
    std::string get(const std::string &key) override {
        const std::lock_guard lock(keys_->mutex);
        return keys_->values[key];
    }
    bool has(const std::string &key) override {
        if (keys_->is_broken) throw std::runtime_error("the store is broken");
        const std::lock_guard lock(keys_->mutex);
        return keys_->values.contains(key);
    }
    int64_t add(const std::string &key, int64_t value) override {
        const std::lock_guard lock(keys_->mutex);
        std::string &sum = keys_->values[key];
        sum = std::to_string(value + (sum.empty() ? 0 : std::stoll(sum)));
        return std::stoll(sum);
    }
    void remove(const std::string &key) override {
        const std::lock_guard lock(keys_->mutex);
        keys_->values.erase(key);
    }
    std::unique_ptr<GroupStore> connect_anew() override {
        return std::make_unique<MemoryStore>(keys_);
    }

private:
    std::shared_ptr<SharedKeys> keys_;
};

// One rank's messenger, with calls that wait.
class Rank {
public:
    Rank(std::shared_ptr<SharedKeys> keys, size_t rank, size_t ranks)
        : messenger_(std::make_shared<MemoryStore>(std::move(keys)), "test", static_cast<int>(rank),
                     std::vector(ranks, ProcessIdentity::of_this_process()),
                     {.timeout = seconds(30)}) {}

    std::future<int> send(const std::vector<int> &data, size_t dest, int tag = 0) {
        auto [done, future] = make_completion();
        messenger_.send(data.data(), data.size() * sizeof(int), static_cast<int>(dest), tag, limit_,
                        done);
        return std::move(future);
    }
    std::future<int> receive(std::vector<int> &data, int source, int tag = 0) {
        auto [done, future] = make_completion();
        last_ = messenger_.receive(data.data(), data.size() * sizeof(int), source, tag, done);
        return std::move(future);
    }
    bool cancel_last() {
        return messenger_.cancel(last_, std::make_exception_ptr(CallFailure(qcclTimeout, "late")));
    }
    void close() { messenger_.close(seconds(30)); }
    void set_limit(Milliseconds limit) { limit_ = limit; }
    Messenger &messenger() { return messenger_; }

private:
    static std::pair<Completion, std::future<int>> make_completion() {
        auto promise = std::make_shared<std::promise<int>>();
        auto future = promise->get_future();
        return {[promise](std::exception_ptr error, int source) {
                    if (error)
                        promise->set_exception(std::move(error));
                    else
                        promise->set_value(source);
                },
                std::move(future)};
    }
    Messenger messenger_;
    uint64_t last_ = 0;
    Milliseconds limit_ = seconds(30);
};

// Runs a body on each of some ranks, which have a store.
template <class Body> void on_ranks(size_t ranks, Body body) {
    const auto keys = std::make_shared<SharedKeys>();
    qtest::on_each_thread(ranks, [&](size_t rank) {
        Rank own(keys, rank, ranks);
        body(own, rank);
        own.close();
    });
}

// Waits, and returns the result's code.
qcclResult_t code_of(std::future<int> &&future) {
    CHECK(future.wait_for(seconds(30)) == std::future_status::ready);
    try {
        future.get();
        return qcclSuccess;
    } catch (const CallFailure &failure) {
        return failure.code();
    }
}

std::vector<int> numbers(size_t count, int first) {
    std::vector<int> values(count);
    std::iota(values.begin(), values.end(), first);
    return values;
}

void messages_match_by_tag_in_any_order() {
    constexpr size_t ranks = 3, messages = 60;
    on_ranks(ranks, [](Rank &own, size_t rank) {
        std::mt19937 random(static_cast<unsigned>(rank));
        const auto length = [](size_t tag) {
            constexpr std::array<size_t, 5> lengths{0, 3, 70, 9000, 200000};
            return lengths[tag % lengths.size()];
        };
        std::vector<std::vector<int>> sent, received;
        std::vector<std::future<int>> sends, receives;
        std::vector<size_t> tags(messages);
        std::iota(tags.begin(), tags.end(), size_t{0});
        const size_t next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
        std::ranges::shuffle(tags, random);
        for (const size_t tag : tags)
            sent.push_back(numbers(length(tag), static_cast<int>(1000 * rank + tag)));
        for (size_t i = 0; i < messages; i++)
            sends.push_back(own.send(sent[i], next, static_cast<int>(tags[i])));
        std::ranges::shuffle(tags, random);
        received.reserve(messages);
        for (const size_t tag : tags) {
            received.emplace_back(length(tag));
            receives.push_back(
                own.receive(received.back(), static_cast<int>(previous), static_cast<int>(tag)));
        }
        for (auto &each : receives) CHECK_EQ(static_cast<size_t>(each.get()), previous);
        for (size_t i = 0; i < messages; i++)
            CHECK(received[i] ==
                  numbers(length(tags[i]), static_cast<int>(1000 * previous + tags[i])));
        for (auto &each : sends) each.get();
    });
}

// More messages than a receiver keeps for a sender wait at the sender, and still come in order.
void messages_of_one_tag_keep_their_order() {
    constexpr size_t messages = 6000;
    on_ranks(2, [](Rank &own, size_t rank) {
        std::vector<std::vector<int>> data;
        std::vector<std::future<int>> futures;
        for (size_t i = 0; i < messages; i++)
            data.push_back(numbers(1 + 13 * (i % 200), static_cast<int>(i)));
        if (rank == 0) {
            for (const auto &each : data) futures.push_back(own.send(each, 1));
        } else {
            std::vector<int> last(1);
            const auto sent_last = own.receive(last, 0, 9); // all others are here or wait by then
            for (auto &expected : data) {
                std::vector<int> got(expected.size());
                CHECK_EQ(own.receive(got, 0).get(), 0);
                CHECK(got == expected);
            }
            sent_last.wait();
        }
        const std::vector<int> last{1};
        if (rank == 0) own.send(last, 1, 9).get();
        for (auto &each : futures) each.get();
    });
}

void a_receive_takes_messages_of_any_rank() {
    constexpr size_t ranks = 4;
    for (const size_t length : {size_t{5}, size_t{50000}})
        on_ranks(ranks, [length](Rank &own, size_t rank) {
            const std::vector<int> mine = numbers(length, static_cast<int>(rank));
            if (rank != 0) {
                own.send(mine, 0).get();
                return;
            }
            std::vector<int> seen;
            for (size_t i = 1; i < ranks; i++) {
                std::vector<int> got(length);
                const int source = own.receive(got, any_source).get();
                CHECK(got == numbers(length, source));
                seen.push_back(source);
            }
            std::ranges::sort(seen);
            CHECK(seen == (std::vector{1, 2, 3}));
        });
}

void messages_of_another_size_are_refused() {
    on_ranks(2, [](Rank &own, size_t rank) {
        const std::vector<int> small(5), large(100000), fits = numbers(100000, 7);
        std::vector<int> got(100000), few(4);
        if (rank == 0) {
            CHECK_EQ(code_of(own.send(small, 1)), qcclSuccess); // it is on its way
            CHECK_EQ(code_of(own.send(large, 1)), qcclMismatch);
            CHECK_EQ(code_of(own.send(fits, 1)), qcclSuccess);
        } else {
            CHECK_EQ(code_of(own.receive(few, 0)), qcclMismatch);
            CHECK_EQ(code_of(own.receive(few, 0)), qcclMismatch);
            CHECK_EQ(code_of(own.receive(got, 0)), qcclSuccess);
            CHECK(got == fits);
        }
    });
}

void a_receive_can_be_taken_back() {
    on_ranks(2, [](Rank &own, size_t rank) {
        const std::vector<int> data{1, 2};
        std::vector<int> never(2), got(2);
        if (rank == 0) {
            own.send(data, 1, 1).get();
            own.send(data, 1, 2).get();
            return;
        }
        auto taken_back = own.receive(never, 0, 2);
        CHECK(own.cancel_last());
        CHECK(!own.cancel_last());
        CHECK_EQ(code_of(std::move(taken_back)), qcclTimeout);
        own.receive(got, 0, 1).get();
        own.receive(got, 0, 2).get();
        CHECK(got == data && never == std::vector<int>(2));
    });
}

// What a rank has sent can be received when it has left, and nothing else.
void a_rank_that_leaves_is_missed() {
    std::promise<void> has_left;
    const std::shared_future<void> left = has_left.get_future().share();
    const auto keys = std::make_shared<SharedKeys>();
    qtest::on_each_thread(2, [&](size_t rank) {
        Rank own(keys, rank, 2);
        std::vector<int> data{3}, got(1);
        if (rank == 0) {
            auto first = own.receive(got, 1, 0);
            auto never = own.receive(got, 1, 5);
            first.get();
            CHECK_EQ(code_of(std::move(never)), qcclPeerLost);
            left.wait();
            CHECK_EQ(code_of(own.receive(got, any_source, 1)), qcclSuccess);
            CHECK_EQ(got.front(), 3);
            CHECK_EQ(code_of(own.receive(got, any_source, 1)), qcclPeerLost);
            CHECK_EQ(code_of(own.send(data, 1)), qcclPeerLost);
        } else {
            own.send(data, 0, 0).get();
            own.send(data, 0, 1).get();
            own.close();
            has_left.set_value();
        }
        own.close();
        CHECK_EQ(code_of(own.send(data, 1 - rank)), qcclRevoked);
        CHECK(code_of(own.receive(got, static_cast<int>(1 - rank), 7)) != qcclSuccess);
    });
}

void a_store_that_fails_ends_the_waiting() {
    const auto keys = std::make_shared<SharedKeys>();
    Rank own(keys, 0, 2);
    std::vector<int> data(1);
    auto first = own.receive(data, 1);
    auto second = own.send(data, 1);
    keys->is_broken = true;
    CHECK_EQ(code_of(std::move(first)), qcclSystemError);
    CHECK_EQ(code_of(std::move(second)), qcclSystemError);
}

void what_waits_fails_at_the_end() {
    const auto keys = std::make_shared<SharedKeys>();
    auto own = std::make_unique<Rank>(keys, 0, 2);
    std::vector<int> data(1);
    auto first = own->receive(data, any_source);
    auto second = own->send(data, 1);
    own.reset();
    CHECK_EQ(code_of(std::move(first)), qcclRevoked);
    CHECK_EQ(code_of(std::move(second)), qcclRevoked);
}

// ---- Links that fail

// Plays rank 0 without a Messenger: announces itself, and connects as the lower rank does.
struct RawPeer {
    std::unique_ptr<Communicator> outgoing, incoming;

    explicit RawPeer(const std::shared_ptr<SharedKeys> &keys) {
        const CommunicatorSettings settings{.name = "messages", .timeout = seconds(30)};
        qcclUniqueId id{};
        check(qcclGetUniqueId(&id));
        MemoryStore store(keys);
        store.set("test/link/0/1", std::string(id.internal, sizeof id.internal));
        store.set("test/inbox/1/1", "0");
        outgoing = std::make_unique<Communicator>(id, 0, 2, settings, [] {});
        incoming = std::make_unique<Communicator>(*outgoing, settings, [] {});
    }
    void send_frame(const MessageFrame &frame) const {
        check(qcclSend(&frame, sizeof frame, qcclUint8, 1, outgoing->handle(), nullptr));
    }
};

// A receive that the link has taken fails when the peer ends after the frame, and is not forgotten.
void data_that_never_come_fail_the_receive() {
    for (const size_t expected : {size_t{10000}, size_t{10}}) {
        const auto keys = std::make_shared<SharedKeys>();
        Rank own(keys, 1, 2);
        std::vector<int> got(expected);
        auto received = own.receive(got, 0);
        const RawPeer peer(keys);
        peer.send_frame({.kind = FrameKind::eager, .bytes = 10000 * sizeof(int)});
        peer.outgoing->abort();
        CHECK_EQ(code_of(std::move(received)), qcclRevoked);
    }
}

// The peer has no room for another message while its receiving thread is busy.
void a_small_send_keeps_to_its_limit() {
    std::promise<void> goes_on;
    const std::shared_future<void> has_failed = goes_on.get_future().share();
    on_ranks(2, [&](Rank &own, size_t rank) {
        const std::vector<int> small{1};
        if (rank == 1) {
            int value = 0;
            own.messenger().receive(&value, sizeof value, 0, 0,
                                    [&](std::exception_ptr, int) { has_failed.wait(); });
            has_failed.wait();
            return;
        }
        own.send(small, 1).get();
        own.set_limit(Milliseconds(300));
        qcclResult_t code = qcclSuccess;
        std::vector<std::future<int>> waiting;
        for (size_t i = 0; i < 100000 && code == qcclSuccess; i++) {
            waiting.push_back(own.send(small, 1, 1));
            if (waiting.back().wait_for(seconds(0)) == std::future_status::ready)
                code = code_of(std::move(waiting.back()));
        }
        CHECK_EQ(code, qcclTimeout);
        goes_on.set_value();
    });
}

// ---- No threads

void a_receive_without_a_thread_fails() {
    Rank own(std::make_shared<SharedKeys>(), 0, 2);
    std::vector<int> data(1);
    const NoThreads none;
    CHECK_EQ(code_of(own.receive(data, 1)), qcclSystemError);
    CHECK(!own.cancel_last());
}

void a_link_without_a_thread_fails() {
    ReceiveBoard board(0, 2);
    PeerLink link(1, board);
    std::promise<int> sent;
    const int value = 1;
    link.send(&value, sizeof value, 0, seconds(30),
              [&](std::exception_ptr error, int) { sent.set_exception(std::move(error)); });
    {
        const NoThreads none;
        link.connect([](const std::atomic<bool> &) { return PeerLink::Channels{}; });
    }
    CHECK_EQ(code_of(sent.get_future()), qcclSystemError);
}

// A rank whose process ends before it has sent anything is missed, too.
void a_process_that_has_ended_is_missed() {
    const ProcessIdentity own = ProcessIdentity::of_this_process();
    CHECK(!own.has_ended());
    int told[2];
    CHECK_EQ(pipe(told), 0);
    const pid_t child = fork();
    if (child == 0) {
        const ProcessIdentity mine = ProcessIdentity::of_this_process();
        _exit(write(told[1], &mine, sizeof mine) == static_cast<ssize_t>(sizeof mine) ? 0 : 1);
    }
    ProcessIdentity child_state;
    CHECK_EQ(read(told[0], &child_state, sizeof child_state),
             static_cast<ssize_t>(sizeof child_state));
    siginfo_t end{};
    CHECK_EQ(waitid(P_PID, static_cast<id_t>(child), &end, WEXITED | WNOWAIT), 0);
    CHECK(child_state.has_ended()); // not yet collected by its parent
    CHECK_EQ(waitpid(child, nullptr, 0), child);
    CHECK(child_state.has_ended());
    ProcessIdentity elsewhere = child_state;
    elsewhere.host.front() = '?';
    CHECK(!elsewhere.has_ended());
    close(told[0]);
    close(told[1]);

    Messenger messenger(std::make_shared<MemoryStore>(std::make_shared<SharedKeys>()), "test", 0,
                        {own, child_state}, {.timeout = seconds(30)});
    std::promise<int> missed;
    int value = 0;
    messenger.receive(&value, sizeof value, 1, 0, [&](std::exception_ptr error, int) {
        missed.set_exception(std::move(error));
    });
    CHECK_EQ(code_of(missed.get_future()), qcclPeerLost);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(messages_match_by_tag_in_any_order),    QTEST(messages_of_one_tag_keep_their_order),
        QTEST(a_receive_takes_messages_of_any_rank),  QTEST(messages_of_another_size_are_refused),
        QTEST(a_receive_can_be_taken_back),           QTEST(a_rank_that_leaves_is_missed),
        QTEST(a_store_that_fails_ends_the_waiting),   QTEST(what_waits_fails_at_the_end),
        QTEST(data_that_never_come_fail_the_receive), QTEST(a_small_send_keeps_to_its_limit),
        QTEST(a_receive_without_a_thread_fails),      QTEST(a_link_without_a_thread_fails),
        QTEST(a_process_that_has_ended_is_missed),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
