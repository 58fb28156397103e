// The handles of one kind that C programs hold. A handle is an id and never an address: a slot of a
// table that does not shrink, and the slot's generation, which counts the handles that have had the
// slot. An ended handle is therefore refused for the life of the process at no cost in memory, and
// a value that never was a handle is refused without being dereferenced.
// The table refuses handles that a forked child has from its parent, by the epochs of
// base/system.hpp.
// Any thread may call everything here at any time. Two things block: Reference::await_others, and
// the release of the last reference after the handle's end, which destroys the object.
#pragma once

#include "base/result.hpp"
#include "base/system.hpp"

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>

namespace qccl {

// The error for a child that uses a handle of its parent; `what` names the argument.
inline Error refuse_child(const char *what) {
    return Error::make(Code::invalid_usage,
                       "%s belongs to the parent process; after fork, make communicators and "
                       "streams of your own (codecs may be shared)",
                       what);
}

// ---- Handles

static_assert(sizeof(void *) == sizeof(uint64_t), "a handle needs 64 bits");

struct HandleId {
    static constexpr unsigned slot_bits = 24, generation_bits = 24;
    static constexpr uint32_t most_slots = uint32_t{1} << slot_bits;
    static constexpr uint32_t last_generation = (uint32_t{1} << generation_bits) - 1;

    uint16_t tag = 0;
    uint32_t slot = 0;
    uint32_t generation = 0; // from 1

    static HandleId of(const void *handle) {
        const auto bits = reinterpret_cast<uintptr_t>(handle);
        return {.tag = static_cast<uint16_t>(bits >> (slot_bits + generation_bits)),
                .slot = static_cast<uint32_t>(bits >> generation_bits & ((1U << slot_bits) - 1)),
                .generation = static_cast<uint32_t>(bits & last_generation)};
    }
    void *handle() const {
        const uint64_t bits = (uint64_t{tag} << slot_bits | slot) << generation_bits | generation;
        return reinterpret_cast<void *>(bits);
    }
};

// One kind of handle: the first bits of its ids, and the words of refusals.
struct HandleKind {
    // The first 16 bits of an id. No address of a program has them.
    uint16_t tag;
    const char *argument; // parameter's name in the C header
    const char *unknown;  // "is 0x1234, which ..."
    const char *ended;
    bool is_inherited; // a forked child may use its parent's handles
    // Less for handles that C programs hold as a number of fewer bits.
    uint32_t most_slots = HandleId::most_slots;
    uint32_t last_generation = HandleId::last_generation;
};

// One word holds which handle has a slot, whether that handle has ended, and how many references to
// its object exist. No reference can therefore be taken after the end.
class HandleLife {
public:
    enum class State : uint8_t { alive, ended, unknown };

    uint32_t generation() const { return generation_of(word_.load(std::memory_order_acquire)); }
    // Only the thread that has taken the slot calls this.
    void begin(uint32_t generation) {
        word_.store(generation * one_generation, std::memory_order_release);
    }
    // Adds a reference if the handle is alive.
    State refer(uint32_t generation) {
        uint64_t word = word_.load(std::memory_order_relaxed);
        do {
            if (generation_of(word) < generation) return State::unknown;
            if (generation_of(word) > generation || (word & ended) != 0) return State::ended;
        } while (!word_.compare_exchange_weak(word, word + 1, std::memory_order_acquire,
                                              std::memory_order_relaxed));
        return State::alive;
    }
    // Takes no reference: the handle may end at any time.
    bool is_alive(uint32_t generation) const {
        const uint64_t word = word_.load(std::memory_order_acquire);
        return generation_of(word) == generation && (word & ended) == 0;
    }
    // Returns true if the handle has ended and no reference is left: the caller frees the object.
    bool release() {
        const uint64_t before = word_.fetch_sub(1, std::memory_order_acq_rel);
        return (before & ended) != 0 && references(before) == 1;
    }
    // Requires a reference. Returns false if another thread has ended the handle.
    bool end() { return (word_.fetch_or(ended, std::memory_order_acq_rel) & ended) == 0; }
    bool has_one_reference() const {
        return references(word_.load(std::memory_order_acquire)) == 1;
    }

private:
    static constexpr uint64_t ended = uint64_t{1} << 31, one_generation = uint64_t{1} << 32;

    static uint32_t generation_of(uint64_t word) {
        return static_cast<uint32_t>(word / one_generation);
    }
    static uint64_t references(uint64_t word) { return word % ended; }

    std::atomic<uint64_t> word_{ended};
};

// What a slot holds. It is never freed, so that late callers find it valid. It has a cache line of
// its own, because every call of a rank writes there, and its neighbours may belong to other
// threads' ranks.
template <class Held> struct alignas(64) HandleRecord {
    using Object = Held;

    bool is_of_this_process() const {
        const uint64_t made_in = epoch.load(std::memory_order_relaxed);
        return made_in == 0 || made_in == current_epoch();
    }
    // A record with more members starts them here, before the handle is known, and ends them here,
    // when no reference is left.
    void open(uint32_t) {}
    void close() {}

    HandleLife life;
    std::atomic<uint64_t> epoch{0};     // of the process that made the handle; 0: inherited
    std::shared_ptr<Object> object;     // for threads that have a reference or are inside
    std::atomic<uint32_t> next_free{0}; // next free slot + 1, while this slot is free; 0: none
};

template <class Record> class HandleTable {
public:
    using Object = typename Record::Object;

    // Keeps a handle's object alive. The last reference after the handle's end frees the object.
    class Reference {
    public:
        Reference() = default;
        Reference(Reference &&other) noexcept
            : table_(other.table_), record_(std::exchange(other.record_, nullptr)), id_(other.id_) {
        }
        Reference &operator=(Reference &&other) noexcept {
            std::swap(table_, other.table_);
            std::swap(record_, other.record_);
            std::swap(id_, other.id_);
            return *this;
        }
        ~Reference() {
            if (record_ && record_->life.release()) table_->free(*record_, id_);
        }

        explicit operator bool() const { return record_ != nullptr; }
        Object *get() const { return record_ ? record_->object.get() : nullptr; }
        Object &operator*() const { return *record_->object; }
        Object *operator->() const { return record_->object.get(); }
        Record &record() const { return *record_; }
        uint32_t generation() const { return id_.generation; }

        // Ends the handle: every later call with it is refused. Returns invalid_usage if it has
        // already ended.
        Done end() {
            if (record_->life.end()) return {};
            return table_->has_ended(id_);
        }
        // Called after the end. Waits until this is the only reference; the calling thread must
        // have no other.
        void await_others() const {
            while (!record_->life.has_one_reference())
                std::this_thread::sleep_for(std::chrono::microseconds(50));
        }

    private:
        friend HandleTable;
        Reference(HandleTable *table, Record *record, const HandleId &id)
            : table_(table), record_(record), id_(id) {}

        HandleTable *table_ = nullptr;
        Record *record_ = nullptr;
        HandleId id_{};
    };

    explicit constexpr HandleTable(const HandleKind &kind) : kind_(kind) {}

    // Creates a handle for the object.
    Result<void *> add(std::shared_ptr<Object> object) {
        return add(std::move(object), [](Record &) {});
    }
    // The same. `prepare`, a function of the record, runs before the handle is known.
    template <class Prepare>
    Result<void *> add(std::shared_ptr<Object> object, const Prepare &prepare) {
        uint64_t epoch = 0;
        if (!kind_.is_inherited) {
            QCCL_TRY(epoch, begin_epoch());
        }
        QCCL_TRY(const uint32_t slot, take_slot());
        Record &record = at(slot);
        const uint32_t generation = record.life.generation() + 1;
        record.epoch.store(epoch, std::memory_order_relaxed);
        record.object = std::move(object);
        prepare(record);
        record.open(generation);
        record.life.begin(generation);
        return HandleId{kind_.tag, slot, generation}.handle();
    }

    // Whether the value looks like a handle of this kind.
    bool has_tag(const void *handle) const { return HandleId::of(handle).tag == kind_.tag; }
    // Returns nullptr if there never was such a handle. The handle of a record may have ended.
    Record *find(const HandleId &id) const {
        if (id.tag != kind_.tag || id.generation == 0) return nullptr;
        Record *const records = chunk_with(id.slot);
        return records ? records + place_in_chunk(id.slot) : nullptr;
    }
    // Whether refer() would succeed, for callers that need no reference.
    bool is_alive(const void *handle) const {
        const HandleId id = HandleId::of(handle);
        const Record *const record = find(id);
        return record && record->is_of_this_process() && record->life.is_alive(id.generation);
    }
    // Returns a reference to the handle's object. An error says why there is none: invalid_argument
    // for a value that never was a handle, else invalid_usage.
    Result<Reference> refer(const void *handle) {
        const HandleId id = HandleId::of(handle);
        Record *const record = find(id);
        if (!record) return is_unknown(handle);
        if (!record->is_of_this_process()) return refuse_child(kind_.argument);
        switch (record->life.refer(id.generation)) {
        case HandleLife::State::alive: return Reference(this, record, id);
        case HandleLife::State::ended: return has_ended(id);
        default: return is_unknown(handle);
        }
    }

private:
    static constexpr uint32_t first_chunk = 64;
    // Each chunk is twice as long as the one before.
    static constexpr unsigned most_chunks = std::bit_width(HandleId::most_slots / first_chunk);

    static unsigned chunk_of(uint32_t slot) {
        return static_cast<unsigned>(std::bit_width(slot / first_chunk + 1)) - 1;
    }
    static uint32_t place_in_chunk(uint32_t slot) {
        return slot + first_chunk - (first_chunk << chunk_of(slot));
    }
    // Returns nullptr if the table has not grown that far.
    Record *chunk_with(uint32_t slot) const {
        return chunks_[chunk_of(slot)].load(std::memory_order_acquire);
    }
    // Requires a slot that has been taken before.
    Record &at(uint32_t slot) const { return chunk_with(slot)[place_in_chunk(slot)]; }

    Error is_unknown(const void *handle) const {
        if (!handle) return invalid_argument("%s is NULL", kind_.argument);
        return invalid_argument("%s is %p, which %s", kind_.argument, handle, kind_.unknown);
    }
    Error has_ended(const HandleId &id) const {
        return Error::make(Code::invalid_usage, "%s is %p, which has been %s", kind_.argument,
                           id.handle(), kind_.ended);
    }

    Result<uint32_t> take_slot() {
        uint64_t head = free_.load(std::memory_order_acquire);
        while (slot_of(head) != 0) {
            const uint32_t slot = slot_of(head) - 1;
            const uint32_t next = at(slot).next_free.load(std::memory_order_relaxed);
            if (free_.compare_exchange_weak(head, counted(head, next), std::memory_order_acquire))
                return slot;
        }
        uint32_t slot = used_.load(std::memory_order_relaxed);
        do {
            if (slot >= kind_.most_slots)
                return Error::make(Code::system_error, "there are %u handles of this kind already",
                                   kind_.most_slots);
            grow_to(slot); // before the slot is taken, because memory may run out
        } while (!used_.compare_exchange_weak(slot, slot + 1, std::memory_order_relaxed));
        return slot;
    }
    void grow_to(uint32_t slot) {
        std::atomic<Record *> &chunk = chunks_[chunk_of(slot)];
        if (chunk.load(std::memory_order_acquire)) return;
        auto records = std::make_unique<Record[]>(first_chunk << chunk_of(slot));
        Record *found = nullptr;
        if (chunk.compare_exchange_strong(found, records.get())) (void)records.release();
    }
    // A slot that has used up its generations is not reused.
    void free(Record &record, const HandleId &id) {
        record.close();
        record.object.reset();
        if (id.generation == kind_.last_generation) return;
        uint64_t head = free_.load(std::memory_order_relaxed);
        do record.next_free.store(slot_of(head), std::memory_order_relaxed);
        while (!free_.compare_exchange_weak(head, counted(head, id.slot + 1),
                                            std::memory_order_release, std::memory_order_relaxed));
    }
    static uint32_t slot_of(uint64_t head) { return static_cast<uint32_t>(head); }
    // Changes are counted, so that a head that was replaced and came back is not mistaken for the
    // same (ABA).
    static uint64_t counted(uint64_t head, uint32_t slot) {
        return ((head >> 32) + 1) << 32 | slot;
    }

    const HandleKind kind_;
    std::array<std::atomic<Record *>, most_chunks> chunks_{};
    std::atomic<uint32_t> used_{0}; // slots that were ever taken
    // The first free slot + 1; its record names the next. The upper half counts changes.
    std::atomic<uint64_t> free_{0};
};

} // namespace qccl
