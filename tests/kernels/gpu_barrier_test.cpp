// Tests the flag barrier of KernelLauncher: each GPU signals all others and learns whether all
// others have signalled it, and launches that depend on the barrier run only if all have.
#include "tests/kit/qtest.hpp"
#include "tested_launchers.hpp"

#include <array>
#include <span>

using namespace qccl;

namespace {

constexpr uint64_t value = 0x123456789ABCDEF1, stale = 0x1111;

// One of several GPUs, with its own flag words and those of the others.
class Place {
public:
    Place(const TestedLauncher &on, size_t others) : on_(on) {
        for (size_t i = 0; i < others; i++) {
            own_words_[i] = value;
            others_.push_back(&told_[i]);
        }
        told_.fill(stale);
        lend(own_words_.data(), sizeof own_words_);
        lend(told_.data(), sizeof told_);
        lend(&met_, sizeof met_);
        lend(&met_on_host_, sizeof met_on_host_);
        lend(from_.data(), sizeof from_);
        lend(to_.data(), sizeof to_);
    }
    ~Place() {
        for (void *const memory : lent_) on_.take_back(memory);
    }
    Place(const Place &) = delete;

    void has_not_told(size_t other) { own_words_[other] = stale; }
    // Runs the barrier, and then a copy that depends on it.
    void run() {
        KernelLauncher launcher(on_.launch, nullptr, MostBlocks{1, 1});
        CHECK_OK(launcher.launch_barrier({.value = value,
                                          .looks = 3,
                                          .own_words = own_words_.data(),
                                          .others = others_,
                                          .met = &met_,
                                          .met_on_host = &met_on_host_}));
        CHECK_OK(launcher.await(&met_, value));
        CHECK_OK(launcher.copy(DataType::float32, to_.data(), DataType::float32, from_.data(),
                               from_.size()));
        CHECK_OK(launcher.await(nullptr, 0));
    }
    bool have_met() const {
        CHECK_EQ(met_, met_on_host_);
        CHECK(met_ == value || met_ == 0);
        const bool is_copied = to_ == from_;
        CHECK_EQ(is_copied, met_ == value);
        return is_copied;
    }
    bool has_told_all() const {
        for (size_t i = 0; i < told_.size(); i++)
            if (told_[i] != (i < others_.size() ? value : stale)) return false;
        return true;
    }

private:
    void lend(void *memory, size_t bytes) {
        on_.lend(memory, bytes, true);
        lent_.push_back(memory);
    }

    const TestedLauncher &on_;
    std::array<uint64_t, KernelLauncher::Barrier::most_others> own_words_{}, told_{};
    std::vector<uint64_t *> others_;
    uint64_t met_ = stale, met_on_host_ = stale;
    std::array<float, 100> from_ = [] {
        std::array<float, 100> values{};
        values.fill(2.5F);
        return values;
    }();
    std::array<float, 100> to_{};
    std::vector<void *> lent_;
};

} // namespace

static void those_who_have_all_come_meet() {
    for (const TestedLauncher &on : tested_launchers())
        for (const size_t others : {size_t{1}, size_t{7}, KernelLauncher::Barrier::most_others}) {
            Place place(on, others);
            place.run();
            CHECK(place.has_told_all());
            CHECK(place.have_met());
        }
}

static void nobody_waits_for_ever_for_one_who_has_not() {
    for (const TestedLauncher &on : tested_launchers())
        for (const size_t missing : {size_t{0}, size_t{4}, size_t{6}}) {
            Place place(on, 7);
            place.has_not_told(missing);
            place.run();
            CHECK(place.has_told_all());
            CHECK(!place.have_met());
        }
}

static void more_than_a_launch_can_name_do_not_meet() {
    const TestedLauncher &on = tested_launchers().front();
    std::vector<uint64_t> words(KernelLauncher::Barrier::most_others + 1);
    std::vector<uint64_t *> others;
    for (uint64_t &word : words) others.push_back(&word);
    KernelLauncher launcher(on.launch, nullptr, MostBlocks{1, 1});
    uint64_t met = 0;
    CHECK(!launcher.launch_barrier({.value = value,
                                    .looks = 1,
                                    .own_words = words.data(),
                                    .others = others,
                                    .met = &met,
                                    .met_on_host = &met}));
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(those_who_have_all_come_meet),
        QTEST(nobody_waits_for_ever_for_one_who_has_not),
        QTEST(more_than_a_launch_can_name_do_not_meet),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
