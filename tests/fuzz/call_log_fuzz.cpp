// Fuzzes the call log parser: any file is read safely, the accepted content is consistent and reads
// back the same after writing, and it can be summarized together with another log.
#include "trace/call_log.hpp"

#include <cstdio>
#include <cstdlib>

using namespace qccl;

static void require(bool condition, const char *what) {
    if (condition) return;
    fprintf(stderr, "%s\n", what);
    abort();
}

static std::string write(const CallLog &log) {
    std::string text;
    append_row(text, log.head);
    for (const LoggedComm &comm : log.comms) append_row(text, comm);
    for (const LoggedShape &shape : log.shapes) append_row(text, shape);
    for (const LoggedCall &call : log.calls) append_row(text, call);
    return text;
}

static void read(std::string_view text) {
    const auto log = parse_call_log(text);
    if (!log) return;
    for (const LoggedComm &comm : log->comms) require(comm.rank < comm.ranks(), "a wrong rank");
    for (const LoggedCall &call : log->calls)
        require(log->shapes[call.shape - 1].comm == call.comm, "a shape of another communicator");
    const auto again = parse_call_log(write(*log));
    require(again.is_ok() && write(*again) == write(*log), "a log that is written otherwise");
    const CallLog logs[] = {*log, *again};
    (void)summarize(logs);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    const std::string_view text(reinterpret_cast<const char *>(data), bytes);
    read(text);
    // Appends the input to a valid head and a valid communicator.
    CallLog log;
    log.comms.push_back({.id = 1, .origin = "init", .node = {0, 0, 1}});
    log.shapes.push_back({.id = 1, .comm = 1});
    read(write(log) + std::string(text));
    return 0;
}
