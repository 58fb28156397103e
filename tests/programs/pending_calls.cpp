// Waits for enqueued calls, as pending_calls.hpp says.
#include "pending_calls.hpp"

#include "tests/stress/world_stage.hpp"

#include <thread>

namespace stress {

PendingCalls::PendingCalls(RankReport &report, Random &local) : report_(report), local_(local) {
    for (qcclStream_t &stream : streams_)
        if (qcclStreamCreate(&stream) != qcclSuccess) report_.note_wrong("no stream");
}

PendingCalls::~PendingCalls() {
    for (qcclStream_t stream : streams_) qcclStreamDestroy(stream);
    for (const Entry &entry : entries_) qcclRequestFree(entry.request);
}

void PendingCalls::add(int stream, std::vector<IssuedCall> issued) {
    qcclRequest_t request = nullptr;
    if (qcclRequestRecord(streams_[stream], &request) != qcclSuccess)
        report_.note_wrong("no request");
    entries_.push_back({stream, std::move(issued), request});
}

// Calls may be waited for in any order, so what they received alike is added up.
void PendingCalls::check(const IssuedCall &issued) {
    for (const CallBuffers &buffers : issued.buffers) {
        if (report_.comms[issued.comm].error != qcclSuccess) return; // undefined then
        if (!buffers.are_right()) report_.note_wrong("wrong result of " + text(issued.call));
        if (!buffers.are_intact()) report_.note_wrong("bytes beside " + text(issued.call));
        if (issued.call.equals_everywhere())
            equal_[issued.comm] += buffers.hash() * (issued.call.salt | 1);
    }
}

void PendingCalls::finish(size_t which, qcclResult_t result, double began) {
    const Entry entry = std::move(entries_[which]);
    entries_.erase(entries_.begin() + static_cast<ptrdiff_t>(which));
    // Calls of a group may be of several communicators; each of these is told.
    for (const IssuedCall &issued : entry.issued)
        report_.note(issued.comm, result, now_s() - began);
    for (const IssuedCall &issued : entry.issued) check(issued);
}

void PendingCalls::wait_for_any() {
    std::vector<qcclRequest_t> requests;
    for (const Entry &entry : entries_) requests.push_back(entry.request);
    const double began = now_s();
    int which = -1;
    const qcclResult_t result =
        qcclWaitAny(static_cast<int>(requests.size()), requests.data(), &which);
    if (which < 0 || requests[static_cast<size_t>(which)] != nullptr)
        return report_.note_wrong("qcclWaitAny ended no request");
    finish(static_cast<size_t>(which), result, began);
}

// Errors of all requests but one are dropped; the communicators keep theirs.
void PendingCalls::wait_together() {
    std::vector<qcclRequest_t> requests;
    for (const Entry &entry : entries_) requests.push_back(entry.request);
    const double began = now_s();
    const qcclResult_t result = qcclWaitAll(static_cast<int>(requests.size()), requests.data());
    while (!entries_.empty()) finish(0, result, began);
}

void PendingCalls::test_until_done(size_t which) {
    const double began = now_s();
    qcclResult_t result = qcclSuccess;
    for (int is_done = 0; is_done == 0;) {
        result = qcclTest(&entries_[which].request, &is_done);
        if (result != qcclSuccess) break;
        if (is_done == 0) std::this_thread::yield();
    }
    finish(which, result, began);
}

// The stream returns the error, and the request of the work then has none.
void PendingCalls::synchronize(int stream) {
    const double began = now_s();
    qcclResult_t result = qcclInProgress;
    if (local_.below(2) == 0) {
        result = qcclStreamSynchronize(streams_[stream]);
    } else {
        while ((result = qcclStreamQuery(streams_[stream])) == qcclInProgress)
            std::this_thread::yield();
    }
    for (size_t i = 0; i < entries_.size();) {
        if (entries_[i].stream != stream) {
            i++;
            continue;
        }
        const qcclResult_t own = qcclWait(&entries_[i].request);
        finish(i, result == qcclSuccess ? own : result, began);
    }
}

void PendingCalls::wait_for_some() {
    if (entries_.empty()) return;
    const auto which = static_cast<size_t>(local_.below(static_cast<int>(entries_.size())));
    switch (local_.below(6)) {
    case 0: return wait_for_any();
    case 1: return wait_together();
    case 2: return test_until_done(which);
    case 3: return synchronize(entries_[which].stream);
    default: break;
    }
    const double began = now_s();
    const qcclResult_t result = qcclWait(&entries_[which].request);
    finish(which, result, began);
}

void PendingCalls::wait_for_all() {
    while (!entries_.empty()) wait_for_some();
}

} // namespace stress
