// Fuzzes RendezvousState with peers that hold the secret and send claims, contributions, questions
// and departures in any order. The state accepts or refuses each, and is never complete without all
// ranks.
#include "bootstrap/rendezvous_state.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

using namespace qccl;

static void require(bool condition, const char *what) {
    if (condition) return;
    fprintf(stderr, "%s\n", what);
    abort();
}

namespace {

// Two bytes of the input: the action, and its rank or amount.
struct Act {
    uint8_t what, value;
};

class Play {
public:
    void act(const Act &act) {
        switch (act.what % 5) {
        case 0: join(act); break;
        case 1: contribute(act); break;
        case 2: ask(act); break;
        case 3: depart(act); break;
        default: now_ += std::chrono::milliseconds(act.value); state_.expire(now_);
        }
        if (state_.is_complete() && !state_.failure())
            require(members_ == size_, "complete without every rank");
        if (state_.failure()) require(state_.failure()->text[0] != 0, "no sentence");
    }

private:
    void join(const Act &act) {
        // Most claims are for the same few ranks; some have impossible numbers.
        static constexpr uint32_t odd[] = {0, 1, 4, 100, most_ranks + 1, ~0U};
        Claim claim{.rank = act.value % 4U, .size = 3};
        if (act.what >= 240) claim.size = odd[act.value % std::size(odd)];
        if (act.what >= 250) claim.rank = odd[act.value / 8 % std::size(odd)];
        const Done joined = state_.join(claim, "somewhere");
        if (!joined) return;
        require(claim.rank < claim.size && claim.size <= most_ranks, "an impossible rank");
        if (size_ == 0) is_here_.resize(claim.size);
        size_ = claim.size;
        require(!is_here_[claim.rank], "one rank twice");
        is_here_[claim.rank] = true;
        members_++;
    }
    bool is_member(uint32_t rank) const { return rank < is_here_.size() && is_here_[rank]; }
    // The server passes on only what members send.
    void contribute(const Act &act) {
        const uint32_t rank = act.value % 4U;
        if (!is_member(rank)) return;
        const std::vector<std::byte> mine(act.value / 64 == 3 ? 9 : 8, std::byte{act.value});
        state_.contribute(rank, mine, now_);
        if (const Payload result = state_.take_result())
            require(result->size() % size_ == 0, "a result that is not everyone's");
    }
    void ask(const Act &act) {
        const uint32_t rank = act.value % 4U;
        if (!is_member(rank)) return;
        const Missing missing = state_.missing();
        require(missing.text.empty() == (missing.first == Error::no_rank), "nobody with a name");
        if (state_.elect(rank)) require(!state_.elect(rank), "two are to tell");
    }
    void depart(const Act &act) {
        const uint32_t rank = act.value % 4U;
        if (!is_member(rank)) return;
        state_.depart(rank, static_cast<RendezvousState::Farewell>(act.value / 4 % 3));
        is_here_[rank] = false; // for good: its seat stays taken
        gone_.push_back(rank);
    }

    TimePoint now_ = TimePoint() + std::chrono::hours(1);
    RendezvousState state_{now_, std::chrono::seconds(1)};
    std::vector<bool> is_here_;
    std::vector<uint32_t> gone_;
    uint32_t size_ = 0;
    uint32_t members_ = 0; // in all
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    Play play;
    for (size_t i = 0; i + 1 < bytes; i += 2) play.act({data[i], data[i + 1]});
    return 0;
}
