// The ranks of one run, and what they tell each other outside QCCL: barriers and all-gathers. So
// the tool's own talk neither depends on the library that it measures nor shows up in its
// statistics.
#pragma once

#include "base/result.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace qccl::perf {

class Crew {
public:
    Crew() = default;
    virtual ~Crew() = default;
    Crew(const Crew &) = delete;
    Crew &operator=(const Crew &) = delete;

    // What a rank hears that waits for one which has given up: it has nothing to add to the other's
    // reason.
    static constexpr const char *given_up = "another rank has given up";

    virtual uint32_t rank() const = 0;
    virtual uint32_t size() const = 0;
    // Every rank gives `bytes` bytes and receives those of all, in rank order. Fails when a rank
    // has given up, so that nobody waits for it.
    virtual Done allgather(const void *mine, void *all, size_t bytes) = 0;
    virtual Done barrier() = 0;
    // Tells the others that this rank gives up.
    virtual void give_up() = 0;
    // Whether no rank has asked this before about the same sentence, as far as it is known.
    virtual bool is_first_to_say(std::string_view sentence) = 0;
};

// Says on standard error why this rank fails, unless another has said the same; returns the exit
// status.
int complain(Crew &crew, const Error &error);

// Whether it only says that another rank has given up, which words what happened.
bool is_given_up(const Error &error);

// Once all ranks have come: an error if any has one, which one rank may word; the others know its
// code.
Done settle(Crew &crew, const Done &mine);

template <class T> Result<std::vector<T>> gather(Crew &crew, const T &mine) {
    std::vector<T> all(crew.size());
    QCCL_TRY(crew.allgather(&mine, all.data(), sizeof(T)));
    return all;
}

// Memory that processes of one family, or threads, share; made before they part.
class Board {
public:
    static Result<std::unique_ptr<Board>> create(uint32_t ranks);
    ~Board();
    Board(const Board &) = delete;
    Board &operator=(const Board &) = delete;

    std::unique_ptr<Crew> join(uint32_t rank);
    void give_up();

private:
    friend class BoardCrew;
    struct Head {
        std::atomic<uint32_t> arrived;
        std::atomic<uint32_t> round;
        std::atomic<bool> given_up;
        std::array<std::atomic<uint64_t>, 64> said; // hashes of sentences
    };

    Board(void *memory, uint32_t ranks) : memory_(memory), ranks_(ranks) {}
    Head &head() const { return *static_cast<Head *>(memory_); }
    std::byte *slot(uint32_t rank) const;

    void *memory_;
    uint32_t ranks_;
};

} // namespace qccl::perf
