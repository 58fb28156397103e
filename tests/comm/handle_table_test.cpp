// Tests lib/comm/handle_table: ended handles are refused, no id is given twice although slots are
// used again, and threads may make, use and end handles at the same time.
#include "tests/kit/qtest.hpp"

#include "comm/handle_table.hpp"

#include <thread>
#include <vector>

using namespace qccl;

namespace {

// Counts its living objects.
struct Counted {
    static inline std::atomic<int> alive{0};

    explicit Counted(uint64_t number) : value(number), check(~number) { alive++; }
    ~Counted() {
        check = 0;
        alive--;
    }
    Counted(const Counted &) = delete;

    uint64_t value, check;
};

using Table = HandleTable<HandleRecord<Counted>>;
constexpr HandleKind kind{.tag = 0x51CF,
                          .argument = "thing",
                          .unknown = "is no thing",
                          .ended = "ended",
                          .is_inherited = true};

void *add(Table &table, uint64_t number) {
    const auto handle = table.add(std::make_shared<Counted>(number));
    CHECK(handle);
    return *handle;
}

void end(Table &table, const void *handle) {
    auto reference = table.refer(handle);
    CHECK(reference);
    CHECK(reference->end());
}

Code code_of(Table &table, const void *handle) {
    const auto reference = table.refer(handle);
    return reference ? Code::success : reference.error().code;
}

} // namespace

static void ids_come_back_as_they_were() {
    for (const HandleId id : {HandleId{1, 0, 1}, HandleId{0x51C1, 0xFFFFFF, 0xFFFFFF},
                              HandleId{0xFFFF, 0x800001, 0x400002}}) {
        const HandleId again = HandleId::of(id.handle());
        CHECK_EQ(again.tag, id.tag);
        CHECK_EQ(again.slot, id.slot);
        CHECK_EQ(again.generation, id.generation);
    }
}

static void each_handle_has_its_object() {
    static Table table{kind};
    std::vector<void *> handles;
    for (uint64_t i = 0; i < 1000; i++) handles.push_back(add(table, i));
    CHECK_EQ(Counted::alive, 1000);
    for (uint64_t i = 0; i < 1000; i++) CHECK_EQ((*table.refer(handles[i]))->value, i);
    for (void *const each : handles) end(table, each);
    CHECK_EQ(Counted::alive, 0);
    for (void *const each : handles) CHECK(code_of(table, each) == Code::invalid_usage);
}

static void the_object_lives_as_long_as_a_reference() {
    static Table table{kind};
    void *const handle = add(table, 7);
    {
        const auto reference = table.refer(handle);
        end(table, handle);
        CHECK(code_of(table, handle) == Code::invalid_usage);
        CHECK_EQ((*reference)->value, 7U);
        CHECK_EQ(Counted::alive, 1);
    }
    CHECK_EQ(Counted::alive, 0);
}

// A slot serves as many handles as it has generations, then another slot takes its place.
static void no_id_is_given_twice() {
    static Table table{kind};
    const auto object = std::make_shared<Counted>(0);
    void *const first = *table.add(object);
    end(table, first);
    void *last = nullptr;
    for (uint32_t i = 1; i < HandleId::last_generation; i++) {
        last = *table.add(object);
        if (HandleId::of(last).slot != 0) CHECK_EQ(i, 0U); // too early for another slot
        end(table, last);
    }
    CHECK_EQ(HandleId::of(last).generation, HandleId::last_generation);
    void *const next = *table.add(object);
    CHECK_EQ(HandleId::of(next).slot, 1U);
    CHECK_EQ(HandleId::of(next).generation, 1U);
    for (void *const each : {first, last}) CHECK(code_of(table, each) == Code::invalid_usage);
    end(table, next);
}

static void what_was_not_given_is_unknown() {
    static Table table{kind};
    const HandleId id = HandleId::of(add(table, 1));
    const HandleId wrong[] = {{kind.tag, id.slot, id.generation + 1},
                              {kind.tag, id.slot + 1, 1},
                              {kind.tag, id.slot + 64, 1},
                              {kind.tag, 0xFFFFFF, 1},
                              {kind.tag, id.slot, 0},
                              {kind.tag + 1, id.slot, id.generation}};
    for (const HandleId &each : wrong)
        CHECK(code_of(table, each.handle()) == Code::invalid_argument);
    CHECK(code_of(table, nullptr) == Code::invalid_argument);
    end(table, id.handle());
}

// Threads make handles, use each other's and end them; no thread sees an object that is gone.
static void threads_meet() {
    static Table table{kind};
    constexpr int threads = 4, rounds = 20000, seats = 8;
    static std::atomic<void *> seat[seats];
    std::atomic<int> made{0}, ended{0}, wrong{0};
    std::vector<std::thread> running;
    for (int t = 0; t < threads; t++)
        running.emplace_back([&, t] {
            for (int i = 0; i < rounds; i++) {
                std::atomic<void *> &here = seat[(i * 7 + t) % seats];
                void *const handle = here.load();
                auto reference = handle ? table.refer(handle) : Result<Table::Reference>(Error());
                if (!reference) {
                    void *found = handle;
                    void *const mine = *table.add(std::make_shared<Counted>(i));
                    made++;
                    if (!here.compare_exchange_strong(found, mine))
                        ended += table.refer(mine)->end() ? 1 : 1000000;
                    continue;
                }
                if ((*reference)->check != ~(*reference)->value) wrong++;
                if (i % 3 == t % 3 && reference->end()) ended++;
            }
        });
    for (std::thread &each : running) each.join();
    for (const auto &each : seat)
        if (code_of(table, each) == Code::success) {
            end(table, each);
            ended++;
        }
    CHECK_EQ(wrong, 0);
    CHECK_EQ(ended, made);
    CHECK_EQ(Counted::alive, 0);
    CHECK(made > 100);
}

// The thread that ends a handle and waits is the last user.
static void the_end_waits_for_others() {
    static Table table{kind};
    for (int i = 0; i < 200; i++) {
        void *const handle = add(table, 1);
        std::atomic<bool> is_used{false}, is_over{false}, is_wrong{false};
        std::thread user([&] {
            while (const auto reference = table.refer(handle)) {
                is_used = true;
                if (is_over || (*reference)->check != ~uint64_t{1}) is_wrong = true;
            }
        });
        while (!is_used) std::this_thread::yield();
        {
            auto reference = table.refer(handle);
            CHECK(reference->end());
            reference->await_others();
            is_over = true;
        }
        user.join();
        CHECK(!is_wrong);
    }
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(ids_come_back_as_they_were),
        QTEST(each_handle_has_its_object),
        QTEST(the_object_lives_as_long_as_a_reference),
        QTEST(no_id_is_given_twice),
        QTEST(what_was_not_given_is_unknown),
        QTEST(threads_meet),
        QTEST(the_end_waits_for_others),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
