// For tests of the emulated runtime's C API: checks of calls that must succeed (DO) or be refused
// (REFUSED), handles that end with the test, and a word of the host's memory at which streams wait.
#pragma once

#include "gpu_kit.hpp"

#include <atomic>
#include <mutex>
#include <string>

namespace emulated_kit {

inline void check_call(qcclEmulatedResult_t result, const char *call, const char *file, int line) {
    if (result == qcclEmulatedSuccess) return;
    throw qtest::Failure{std::string(file) + ":" + std::to_string(line) + ": " + call + ": " +
                         qcclEmulatedGetErrorSentence()};
}
#define DO(call)                                                                                   \
    emulated_kit::check_call(qcclEmulated##call, "qcclEmulated" #call, __FILE__, __LINE__)
#define REFUSED(error, call) CHECK_EQ(qcclEmulated##call, qcclEmulatedError##error)

struct EventHandle {
    EventHandle() { DO(EventCreate(&handle)); }
    ~EventHandle() { qcclEmulatedEventDestroy(handle); }
    EventHandle(const EventHandle &) = delete;
    EventHandle &operator=(const EventHandle &) = delete;
    operator qcclEmulatedEvent_t() const { return handle; }
    qcclEmulatedEvent_t handle = nullptr;
};

struct StreamHandle {
    explicit StreamHandle(bool is_blocking = false) {
        if (is_blocking)
            DO(StreamCreate(&handle));
        else
            DO(StreamCreateNonBlocking(&handle));
    }
    ~StreamHandle() { qcclEmulatedStreamDestroy(handle); }
    StreamHandle(const StreamHandle &) = delete;
    StreamHandle &operator=(const StreamHandle &) = delete;
    operator qcclEmulatedStream_t() const { return handle; }
    // Returns whether the stream has no work left.
    bool is_done() const { return qcclEmulatedStreamQuery(handle) == qcclEmulatedSuccess; }
    qcclEmulatedStream_t handle = nullptr;
};

template <class T> struct GpuArray {
    explicit GpuArray(size_t n) : count(n) {
        void *memory = nullptr;
        DO(Malloc(&memory, bytes()));
        at = static_cast<T *>(memory);
    }
    ~GpuArray() { qcclEmulatedFree(at); }
    GpuArray(const GpuArray &) = delete;
    GpuArray &operator=(const GpuArray &) = delete;
    size_t bytes() const { return count * sizeof(T); }
    T &operator[](size_t i) const { return at[i]; }
    size_t count;
    T *at = nullptr;
};

// Holds streams until it is opened. The destructor opens it, so that no test hangs.
class BlockedStream {
public:
    BlockedStream() {
        void *memory = nullptr;
        DO(MallocHost(&memory, sizeof(uint32_t)));
        word_ = static_cast<uint32_t *>(memory);
        *word_ = 0;
    }
    ~BlockedStream() {
        open();
        qcclEmulatedFreeHost(word_);
    }
    BlockedStream(const BlockedStream &) = delete;
    BlockedStream &operator=(const BlockedStream &) = delete;
    void hold(qcclEmulatedStream_t stream) { DO(StreamWaitValue32(stream, word_, 1)); }
    void open() { std::atomic_ref(*word_).store(1); }
    void shut() { std::atomic_ref(*word_).store(0); }
    uint32_t *word() { return word_; }

private:
    uint32_t *word_ = nullptr;
};

// Appends a character to a text when a stream reaches it.
struct Appended {
    std::string *text;
    char appended;
    static void write(void *context) {
        auto *const self = static_cast<Appended *>(context);
        static std::mutex mutex;
        const std::lock_guard lock(mutex);
        self->text->push_back(self->appended);
    }
};

} // namespace emulated_kit
