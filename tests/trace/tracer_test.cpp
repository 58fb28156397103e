// Tests lib/trace: events arrive in order, calls that find the ring full are counted and never
// traced in part, ticks become times that never go back, and files are valid at every moment.
#include "tests/kit/qtest.hpp"
#include "tests/kit/sanitizer.h"
#include "tests/kit/temporary_folder.hpp"

#include "base/clock.hpp"
#include "trace/trace_service.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>
#include <sstream>
#include <thread>

#include <sys/resource.h>

using namespace qccl;
using qtest::TemporaryFolder;

// Number of allocations by threads other than the first that will fail.
static std::atomic<int> failing_allocations{0};
static thread_local bool is_first_thread = false;

#if !UNDER_THREAD_SANITIZER // which defines it as strongly
void *operator new(size_t bytes) {
    if (!is_first_thread && failing_allocations > 0 && failing_allocations-- > 0)
        throw std::bad_alloc();
    if (void *const memory = std::malloc(bytes)) return memory;
    throw std::bad_alloc();
}
void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, size_t) noexcept { std::free(memory); }
#endif

namespace {

namespace fs = std::filesystem;

std::string text_of(const std::string &path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
}

size_t count_of(const std::string &text, std::string_view part) {
    size_t count = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
        count++;
    return count;
}

LoggedComm comm_of_two() {
    LoggedComm comm;
    comm.session = 7;
    comm.origin = "init";
    comm.node = {0, 0};
    return comm;
}

uint32_t add_shape(CallTracer &tracer, uint64_t key) {
    LoggedShape shape;
    shape.collective = Collective::all_reduce;
    shape.codec = shape.inner_codec = shape.asked_codec = "none";
    shape.algorithm = shape.asked_algorithm = "ring";
    return tracer.add_shape(key, shape);
}

void make_call(CallTracer &tracer, uint64_t number, uint32_t shape, uint32_t steps) {
    const bool has_steps = tracer.begin({.number = number, .shape = shape});
    for (uint32_t step = 0; has_steps && step < steps; step++) {
        const uint64_t now = ticks_now();
        tracer.add({.begin = now, .end = now, .step = step, .kind = TraceEvent::Kind::send});
    }
    tracer.end(false);
}

} // namespace

static void events_come_in_their_order() {
    EventRing ring(64);
    std::thread writer([&] {
        for (uint64_t i = 0; i < 100'000;) {
            if (ring.room(1) == 0) {
                std::this_thread::yield();
                continue;
            }
            ring.push({.call = i++});
        }
    });
    uint64_t next = 0;
    bool is_ordered = true;
    while (next < 100'000) {
        ring.drain(ring.shown(), [&](const TraceEvent &event) {
            is_ordered = is_ordered && event.call == next;
            next++;
        });
        std::this_thread::yield();
    }
    writer.join();
    CHECK(is_ordered);
}

// The ring is not drained: some calls are kept whole, and the others are counted.
static void calls_that_find_no_room_are_counted() {
    CallTracer::Wake wake(0);
    CallTracer tracer(comm_of_two(), true, wake);
    const uint32_t shape = add_shape(tracer, 1);
    constexpr uint64_t calls = 30'000;
    for (uint64_t number = 0; number < calls; number++) make_call(tracer, number, shape, 6);
    uint64_t begun = 0, ended = 0, steps = 0, ended_without = 0;
    tracer.ring().drain(tracer.ring().shown(), [&](const TraceEvent &event) {
        if (event.kind == TraceEvent::Kind::call_begin)
            begun++;
        else if (event.kind != TraceEvent::Kind::call_end)
            steps++;
        else
            ((event.detail & TraceEnd::began) != 0 ? ended : ended_without)++;
    });
    CHECK(begun == ended && steps == 6 * begun && begun > 500);
    CHECK_EQ(ended + ended_without + tracer.lost(), calls);
    CHECK(tracer.lost() > 0 && ended_without > 0);
    CHECK(wake.try_acquire()); // the reader has been woken
}

// The call has more steps than fit in the ring. It still ends, and its end says how many are
// missing.
static void a_call_with_too_many_steps_ends_all_the_same() {
    CallTracer::Wake wake(0);
    CallTracer tracer(comm_of_two(), true, wake);
    make_call(tracer, 1, add_shape(tracer, 1), 40'000);
    uint64_t events = 0;
    TraceEvent last;
    tracer.ring().drain(tracer.ring().shown(), [&](const TraceEvent &event) {
        events++;
        last = event;
    });
    CHECK_EQ(events, uint64_t{tracer.ring().capacity()});
    CHECK(last.kind == TraceEvent::Kind::call_end);
    CHECK_EQ(last.peer + events - 2, uint64_t{40'000});
}

static void times_never_go_back() {
    TickClock clock;
    int64_t before = 0;
    uint64_t ticks = ticks_now();
    for (int round = 0; round < 200; round++) {
        std::vector<uint64_t> noted;
        for (int i = 0; i < 50; i++) noted.push_back(ticks_now());
        clock.look();
        for (const uint64_t each : noted) {
            const int64_t time = clock.to_ns(each);
            CHECK(time >= before && each >= ticks);
            before = time;
            ticks = each;
        }
    }
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const int64_t now_ns = std::chrono::nanoseconds(now).count();
    CHECK(std::abs(now_ns - clock.to_ns(ticks_now())) < 1'000'000'000);
}

static void nothing_is_written_over() {
    const TemporaryFolder folder;
    const std::string wanted = folder / "a.b/t.json";
    fs::create_directory(folder / "a.b");
    std::vector<std::string> made;
    for (size_t i = 0; i < 3; i++) {
        auto file = GrowingFile::create(wanted, "\n]\n");
        CHECK_OK(file);
        CHECK_OK(file->append(std::array{"[0", "[1", "[2"}[i]));
        CHECK_OK(file->append(",7"));
        made.push_back(file->path());
    }
    CHECK_EQ(made[0], wanted);
    CHECK_EQ(made[1], folder / "a.b/t.2.json");
    CHECK_EQ(made[2], folder / "a.b/t.3.json");
    CHECK_EQ(text_of(made[0]), "[0,7\n]\n");
    CHECK_EQ(text_of(made[2]), "[2,7\n]\n");
    const auto nowhere = GrowingFile::create(folder / "none/t.json", "");
    CHECK_EQ(std::string(nowhere.error().text),
             "cannot create \"" + folder / "none/t.json" + "\": No such file or directory");
}

// Works as on a full disk: the piece that does not fit is removed, and the file's ending remains.
static void a_file_that_cannot_grow_stays_whole() {
    const TemporaryFolder folder;
    signal(SIGXFSZ, SIG_IGN);
    rlimit before{};
    getrlimit(RLIMIT_FSIZE, &before);
    auto file = GrowingFile::create(folder / "t.json", "\n]\n");
    CHECK_OK(file);
    CHECK_OK(file->append("[\n1"));
    rlimit small = before;
    small.rlim_cur = 4096;
    setrlimit(RLIMIT_FSIZE, &small);
    const Done written = file->append(std::string(8192, '1'));
    setrlimit(RLIMIT_FSIZE, &before);
    CHECK(!written && std::string(written.error().text).ends_with("File too large"));
    CHECK_EQ(text_of(file->path()), "[\n1\n]\n");
}

// The service's own thread writes the calls of two communicators.
static void calls_reach_both_files() {
    const TemporaryFolder folder;
    const TracePatterns patterns{.trace = folder / "t.json", .calls = folder / "c"};
    {
        const auto service = TraceService::create(patterns, 1, 2, "0");
        CHECK_OK(service);
        const auto first = (*service)->attach(comm_of_two());
        const auto second = (*service)->attach(comm_of_two());
        const uint32_t shape = add_shape(*first, 1), other = add_shape(*second, 1);
        for (uint64_t number = 1; number <= 100; number++) {
            make_call(*first, number, shape, 3);
            make_call(*second, number, other, 1);
        }
        (*service)->detach(second);
        (*service)->detach(first);
        CHECK(!(*service)->has_notices());
    }
    const std::string trace = text_of(folder / "t-1.json");
    CHECK(trace.starts_with("[\n") && trace.ends_with("}\n]\n"));
    CHECK_EQ(count_of(trace, "\"ph\":\"B\""), size_t{200});
    CHECK_EQ(count_of(trace, "\"ph\":\"E\""), size_t{200});
    CHECK_EQ(count_of(trace, "\"ph\":\"X\""), size_t{400});
    const auto log = parse_call_log(text_of(folder / "c-1"));
    CHECK_OK(log);
    CHECK(log->calls.size() == 200 && log->lost == 0 && log->has_ended);
    CHECK(log->comms.size() == 2 && log->shapes.size() == 2 && log->shapes[1].comm == 2);
}

// There are far more shapes than are kept, and each call is logged with its own shape.
static void shapes_may_change_without_end() {
    const TemporaryFolder folder;
    const TracePatterns patterns{.trace = {}, .calls = folder / "c"};
    constexpr uint64_t calls = 20'000;
    {
        const auto service = TraceService::create(patterns, 0, 1, "0");
        CHECK_OK(service);
        const auto tracer = (*service)->attach(comm_of_two());
        for (uint64_t number = 1; number <= calls; number++)
            make_call(*tracer, number, add_shape(*tracer, number), 0);
        (*service)->detach(tracer);
    }
    const auto log = parse_call_log(text_of(folder / "c"));
    CHECK_OK(log);
    CHECK_EQ(log->calls.size() + log->lost, calls);
    for (const LoggedCall &call : log->calls) CHECK_EQ(call.number, uint64_t{call.shape});
}

static void a_file_that_cannot_be_made_is_told_and_no_more() {
    const TemporaryFolder folder;
    std::ofstream(folder / "c") << "mine";
    const TracePatterns patterns{.trace = folder / "none/t.json", .calls = folder / "c"};
    const auto service = TraceService::create(patterns, 0, 1, "0");
    CHECK_OK(service);
    const auto tracer = (*service)->attach(comm_of_two());
    make_call(*tracer, 1, add_shape(*tracer, 1), 3);
    (*service)->detach(tracer);
    const auto notices = (*service)->take_notices();
    CHECK_EQ(notices.size(), size_t{2});
    CHECK_EQ(notices[0].text,
             "QCCL_TRACE: cannot create \"" + folder / "none/t.json" +
                 "\": No such file or directory; the job goes on without this file");
    CHECK_EQ(notices[1].text, "QCCL_RECORD_CALLS: \"" + folder / "c" +
                                  "\" is there already and stays as it is; this rank writes \"" +
                                  folder / "c" + ".2\"");
    CHECK_EQ(text_of(folder / "c"), "mine");
    CHECK(parse_call_log(text_of(folder / "c.2")).is_ok());
}

// An allocation of the service fails. Recording ends with a warning, and the job goes on.
static void without_memory_recording_ends() {
    if (UNDER_THREAD_SANITIZER)
        return print_message("skipped: the sanitizer's allocations succeed\n");
    const TemporaryFolder folder;
    const TracePatterns patterns{.trace = folder / "t.json", .calls = folder / "c"};
    const auto service = TraceService::create(patterns, 0, 1, "0");
    CHECK_OK(service);
    const auto tracer = (*service)->attach(comm_of_two());
    const uint32_t shape = add_shape(*tracer, 1);
    failing_allocations = 1;
    uint64_t number = 0;
    for (int ms = 0; ms < 5000 && !(*service)->has_notices(); ms++) {
        make_call(*tracer, ++number, shape, 3);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    CHECK_EQ(failing_allocations, 0);
    const auto notices = (*service)->take_notices();
    CHECK_EQ(notices.size(), size_t{1});
    CHECK(notices[0].is_warning && notices[0].text.starts_with("calls are not recorded any more"));
    for (int i = 0; i < 1000; i++) make_call(*tracer, ++number, shape, 3);
    (*service)->detach(tracer);
}

// The file of a communicator that has failed stays, to be examined.
static void a_record_stays_of_a_failure_alone() {
    for (const bool fails : {false, true}) {
        const TemporaryFolder folder;
        RecordOptions options;
        options.folder = folder.path();
        auto file = FlightRecorderFile::make(options, 1, 0, 1, 0);
        CHECK_OK(file);
        {
            Recorder recorder = file->recorder(0, RecordOwner{.ranks = 1, .communicator = {}}, {});
            file->file.reset();
            CHECK(!fs::is_empty(folder.path()));
            if (fails) recorder.failed();
        }
        CHECK(fs::is_empty(folder.path()) != fails);
    }
}

static void patterns_are_checked() {
    CHECK_OK((TracePatterns{.trace = "t-%r.%h.%p%%", .calls = ""}).check());
    const Done wrong = (TracePatterns{.trace = "", .calls = "%q"}).check();
    CHECK_EQ(std::string(wrong.error().text),
             "QCCL_RECORD_CALLS \"%q\": %h is the host, %p the process, %r the rank and %% a "
             "percent; nothing else may follow %");
    for (const char *folder : {"/tmp", "/nowhere/"}) {
        const Done no_file = (TracePatterns{.trace = folder, .calls = ""}).check();
        const std::string slash = std::string_view(folder).ends_with('/') ? "" : "/";
        CHECK_EQ(std::string(no_file.error().text),
                 "QCCL_TRACE \"" + std::string(folder) +
                     "\" is a folder; expected the name of a file such as " + folder + slash +
                     "rank-%r");
    }
}

int main() {
    is_first_thread = true;
    const CMUnitTest tests[] = {
        QTEST(events_come_in_their_order),
        QTEST(calls_that_find_no_room_are_counted),
        QTEST(a_call_with_too_many_steps_ends_all_the_same),
        QTEST(times_never_go_back),
        QTEST(nothing_is_written_over),
        QTEST(a_file_that_cannot_grow_stays_whole),
        QTEST(calls_reach_both_files),
        QTEST(shapes_may_change_without_end),
        QTEST(a_file_that_cannot_be_made_is_told_and_no_more),
        QTEST(without_memory_recording_ends),
        QTEST(a_record_stays_of_a_failure_alone),
        QTEST(patterns_are_checked),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
