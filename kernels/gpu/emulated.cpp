// Implements emulated.hpp: runs the threads of a block as fibers, tracks which thread waits at
// which meeting place, and records accesses to shared memory since the last barrier.
#include "kernels/gpu/emulated.hpp"

#include "base/types.hpp"

#include <boost/context/fiber.hpp>
#include <boost/context/fixedsize_stack.hpp>
#include <boost/context/preallocated.hpp>

#include <algorithm>
#include <chrono>
#include <array>
#include <span>
#include <thread>
#include <vector>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define QCCL_ADDRESS_SANITIZER
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define QCCL_ADDRESS_SANITIZER
#endif
#ifdef QCCL_ADDRESS_SANITIZER
#include <sanitizer/common_interface_defs.h>
#endif

namespace qccl::emulated {
namespace {

// ---- Stacks

// The memory of a stack, from its lowest address.
struct Stack {
    const void *start = nullptr;
    size_t bytes = 0;
};

// Tells the address sanitizer that the thread goes on with another stack, and what it keeps about
// the one that the thread leaves.
class StackSwitch {
public:
#ifdef QCCL_ADDRESS_SANITIZER
    // Called before a switch. `is_last`: the thread does not come back to the stack that it leaves.
    void leave(const Stack &next, bool is_last = false) {
        __sanitizer_start_switch_fiber(is_last ? nullptr : &kept_, next.start, next.bytes);
    }
    // Called behind a switch. Returns the stack that the thread has left.
    Stack arrive() {
        Stack left;
        __sanitizer_finish_switch_fiber(kept_, &left.start, &left.bytes);
        return left;
    }

private:
    void *kept_ = nullptr;
#else
    void leave(const Stack &, bool = false) {}
    Stack arrive() { return {}; }
#endif
};

// Calls go(), which switches to that stack and comes back.
template <class Go> void visit(const Stack &stack, Go &&go) {
    StackSwitch stack_switch;
    stack_switch.leave(stack);
    go();
    (void)stack_switch.arrive();
}

// ---- The emulator

using boost::context::fiber;

constexpr size_t stack_bytes = size_t{64} << 10;
constexpr size_t most_shared_bytes = size_t{48} << 10; // what every GPU gives a block by default

enum class State : uint8_t { ready, exchanges, votes, at_barrier, ended };

enum class Access : uint8_t { read, write, add };

// The accesses to one byte of shared memory since the last barrier: for each kind of access the
// thread that made it, `nobody` or `several`.
struct Mark {
    static constexpr int nobody = -1, several = -2;
    uint64_t epoch = 0;
    std::array<int, 3> by{nobody, nobody, nobody};

    int &who(Access access) { return by[static_cast<size_t>(access)]; }
    bool is_of_others(Access access, int self) {
        return who(access) != nobody && who(access) != self;
    }
};

struct Site {
    const char *file = nullptr;
    unsigned line = 0;
    bool operator==(const Site &) const = default;
};

struct Thread {
    unsigned number = 0; // in its block
    State state = State::ended;
    Site site;               // where the thread met others last
    uint64_t given = 0;      // value that the thread passed there
    size_t shared_bytes = 0; // shared memory that the thread has declared
    fiber context, scheduler;
    Stack stack, scheduler_stack;
    StackSwitch stack_switch;
};

// Suspends the calling fiber, which is that of the thread, until the emulator resumes it.
void suspend(Thread &self) {
    // Also called where the emulator ends the fiber, which then unwinds its stack.
    struct FinishSwitch {
        Thread &thread;
        ~FinishSwitch() { thread.scheduler_stack = thread.stack_switch.arrive(); }
    } const finish{self};
    self.stack_switch.leave(self.scheduler_stack);
    self.scheduler = std::move(self.scheduler).resume();
}

class KernelEmulator {
public:
    KernelEmulator() = default;
    ~KernelEmulator() { end_fibers(); }
    KernelEmulator(const KernelEmulator &) = delete;
    KernelEmulator &operator=(const KernelEmulator &) = delete;

    Done run(const Grid &grid, Order order, const std::function<void()> &kernel);

    unsigned block() const { return block_; }
    const Grid &grid() const { return grid_; }
    Thread &current() { return *current_; }

    // Suspends the current thread until all threads that it meets have arrived.
    void meet(State state, Site site, uint64_t given);
    // Returns the value that a lane of the current thread's warp passed to the last meeting.
    uint64_t given_by(unsigned lane) const {
        return seen_[current_->number / grid_.lanes * grid_.lanes + lane];
    }
    // Reports behaviour that a GPU leaves undefined: the launch fails, and the thread never
    // resumes.
    void refuse(const char *what);

    std::byte *shared_memory(size_t bytes, size_t alignment);
    void note(const void *at, size_t bytes, Access access);

private:
    struct alignas(16) AlignedBytes {
        std::byte bytes[16];
    };
    std::byte *shared_start() { return reinterpret_cast<std::byte *>(shared_.data()); }

    void start(Thread &thread);
    void resume(Thread &thread);
    void end_fibers();
    Done run_block();
    void run_ready();
    bool release_warps();
    bool release_barrier();

    Grid grid_;
    Order order_ = Order::forward;
    const std::function<void()> *kernel_ = nullptr;
    unsigned block_ = 0;
    uint64_t epoch_ = 0; // each barrier begins a new one
    Thread *current_ = nullptr;
    std::vector<Thread> threads_; // reused by later launches: most of their cost is their stacks
    std::vector<uint64_t> seen_;  // by thread: value passed to its warp's last meeting
    std::vector<Mark> marks_ = std::vector<Mark>(most_shared_bytes);
    std::vector<AlignedBytes> shared_ =
        std::vector<AlignedBytes>(most_shared_bytes / sizeof(AlignedBytes));
    Done outcome_;
};

// Kernels call free functions, as on a GPU, so each thread of the host has an emulator of its own.
// Kernels reach it through a pointer whose place is known once the library is loaded, so that no
// access calls a function or asks for initialization. It takes 8 of the bytes that a process keeps
// for libraries that are loaded later.
[[gnu::tls_model("initial-exec")]] constinit thread_local KernelEmulator *own_emulator = nullptr;

Done KernelEmulator::run(const Grid &grid, Order order, const std::function<void()> &kernel) {
    if (grid.threads % grid.lanes != 0)
        return Error::make(Code::internal_error, "emulated GPU: a block of %u threads and %u lanes",
                           grid.threads, grid.lanes);
    grid_ = grid;
    order_ = order;
    kernel_ = &kernel;
    if (threads_.size() != grid.threads) {
        end_fibers();
        threads_ = std::vector<Thread>(grid.threads);
        seen_.resize(grid.threads);
        for (unsigned i = 0; i < grid.threads; i++) threads_[i].number = i;
    }
    for (block_ = 0; block_ < grid.blocks; block_++) {
        Done outcome = run_block();
        if (outcome) continue;
        end_fibers();
        outcome_ = {};
        return outcome;
    }
    return {};
}

Done KernelEmulator::run_block() {
    epoch_++;
    for (Thread &thread : threads_) {
        thread.state = State::ready;
        thread.shared_bytes = 0;
        if (!thread.context) start(thread);
    }
    while (true) {
        run_ready();
        if (!outcome_) return outcome_;
        if (std::ranges::all_of(threads_, [](const Thread &t) { return t.state == State::ended; }))
            return {};
        if (release_warps()) continue;
        if (!outcome_) return outcome_;
        if (!release_barrier())
            return Error::make(Code::internal_error,
                               "emulated GPU: a thread has ended while others wait at a barrier");
    }
}

// Creates the thread's fiber once; the fiber runs block after block.
void KernelEmulator::start(Thread &thread) {
    boost::context::fixedsize_stack allocator(stack_bytes);
    const boost::context::stack_context memory = allocator.allocate();
    thread.stack = {static_cast<std::byte *>(memory.sp) - memory.size, memory.size};
    thread.context =
        fiber(std::allocator_arg, boost::context::preallocated(memory.sp, memory.size, memory),
              allocator, [this, &thread](fiber &&scheduler) {
                  thread.scheduler_stack = thread.stack_switch.arrive();
                  struct Departure {
                      Thread &of;
                      ~Departure() { of.stack_switch.leave(of.scheduler_stack, true); }
                  } const departure{thread};
                  thread.scheduler = std::move(scheduler);
                  while (true) {
                      suspend(thread);
                      (*kernel_)();
                      thread.state = State::ended;
                  }
                  return fiber();
              });
    resume(thread); // until it waits for the first kernel
}

void KernelEmulator::resume(Thread &thread) {
    current_ = &thread;
    visit(thread.stack, [&] { thread.context = std::move(thread.context).resume(); });
}

// Ends all fibers. Some are suspended inside a kernel and do not come to its end.
void KernelEmulator::end_fibers() {
    for (Thread &thread : threads_)
        if (thread.context) visit(thread.stack, [&] { thread.context = {}; });
    threads_.clear();
}

void KernelEmulator::run_ready() {
    const auto run_one = [&](Thread &thread) {
        if (thread.state == State::ready && outcome_) resume(thread);
    };
    if (order_ == Order::forward)
        std::for_each(threads_.begin(), threads_.end(), run_one);
    else
        std::for_each(threads_.rbegin(), threads_.rend(), run_one);
}

// Resumes warps whose lanes have all arrived at one place. Returns true if there was one. If the
// lanes of a warp are at different places, sets outcome_ to an error.
bool KernelEmulator::release_warps() {
    bool has_released = false;
    for (auto first = threads_.begin(); first != threads_.end(); first += grid_.lanes) {
        const std::span lanes(first, grid_.lanes);
        const auto meets = [](const Thread &t) {
            return t.state == State::exchanges || t.state == State::votes;
        };
        if (std::ranges::none_of(lanes, meets)) continue;
        if (!std::ranges::all_of(lanes, [&](const Thread &t) {
                return t.state == lanes[0].state && t.site == lanes[0].site;
            })) {
            outcome_ = Error::make(Code::internal_error,
                                   "emulated GPU: lanes of a warp meet at different places");
            return false;
        }
        for (Thread &thread : lanes) {
            seen_[thread.number] = thread.given;
            thread.state = State::ready;
        }
        has_released = true;
    }
    return has_released;
}

bool KernelEmulator::release_barrier() {
    if (!std::ranges::all_of(threads_,
                             [](const Thread &t) { return t.state == State::at_barrier; }))
        return false;
    epoch_++;
    for (Thread &thread : threads_) thread.state = State::ready;
    return true;
}

void KernelEmulator::meet(State state, Site site, uint64_t given) {
    Thread &self = *current_;
    self.state = state;
    self.site = site;
    self.given = given;
    suspend(self);
}

void KernelEmulator::refuse(const char *what) {
    if (outcome_)
        outcome_ = Error::make(Code::internal_error, "emulated GPU: %s (block %u, thread %u)", what,
                               block_, current_->number);
    meet(State::ended, {}, 0);
}

std::byte *KernelEmulator::shared_memory(size_t bytes, size_t alignment) {
    Thread &self = *current_;
    const size_t start = round_up(self.shared_bytes, alignment);
    self.shared_bytes = start + bytes;
    if (self.shared_bytes > most_shared_bytes) refuse("more shared memory than a block has");
    return shared_start() + start;
}

void KernelEmulator::note(const void *at, size_t bytes, Access access) {
    const auto start = static_cast<size_t>(static_cast<const std::byte *>(at) - shared_start());
    // The arrays that the thread has declared end here; it does not own the bytes behind them.
    if (start + bytes > current_->shared_bytes) return refuse("beyond the end of shared memory");
    const int self = static_cast<int>(current_->number);
    for (size_t i = start; i < start + bytes; i++) {
        Mark &mark = marks_[i];
        if (mark.epoch != epoch_) mark = {.epoch = epoch_};
        for (const Access other : {Access::read, Access::write, Access::add})
            if ((access != other || access == Access::write) && mark.is_of_others(other, self))
                return refuse("threads touch the same shared memory without a barrier between");
        mark.who(access) = mark.is_of_others(access, self) ? Mark::several : self;
    }
}

} // namespace

Done launch(const Grid &grid, Order order, const std::function<void()> &kernel) {
    static thread_local KernelEmulator emulator;
    own_emulator = &emulator;
    return emulator.run(grid, order, kernel);
}

unsigned thread() { return own_emulator->current().number; }
unsigned block() { return own_emulator->block(); }
unsigned blocks() { return own_emulator->grid().blocks; }

uint64_t exchange(uint64_t value, unsigned mask, const char *file, unsigned line) {
    KernelEmulator &emulator = *own_emulator;
    emulator.meet(State::exchanges, {file, line}, value);
    const unsigned lanes = emulator.grid().lanes;
    const unsigned other = (emulator.current().number % lanes) ^ mask;
    if (other >= lanes) emulator.refuse("a lane that the warp does not have");
    return emulator.given_by(other);
}

uint64_t ballot(bool yes, const char *file, unsigned line) {
    KernelEmulator &emulator = *own_emulator;
    emulator.meet(State::votes, {file, line}, yes ? 1 : 0);
    uint64_t votes = 0;
    for (unsigned lane = 0; lane < emulator.grid().lanes; lane++)
        votes |= emulator.given_by(lane) << lane;
    return votes;
}

void pause() { std::this_thread::sleep_for(std::chrono::microseconds(20)); }
void barrier() { own_emulator->meet(State::at_barrier, {}, 0); }

std::byte *shared_memory(size_t bytes, size_t alignment) {
    return own_emulator->shared_memory(bytes, alignment);
}
void note_read(const void *at, size_t bytes) { own_emulator->note(at, bytes, Access::read); }
void note_write(const void *at, size_t bytes) { own_emulator->note(at, bytes, Access::write); }
void note_add(const void *at, size_t bytes) { own_emulator->note(at, bytes, Access::add); }

} // namespace qccl::emulated
