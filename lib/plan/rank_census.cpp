// Compares schedules by hashes, and keeps one program for each hash.
#include "plan/rank_census.hpp"

#include "codec/noise.hpp"

#include <algorithm>
#include <map>

namespace qccl {

namespace {

constexpr uint32_t none = ~uint32_t{0};

// Two independent hashes of what a rank does, with chunks and peers numbered by their first use.
// Ranks with equal hashes do the same with other chunks and peers.
struct Fingerprint {
    uint64_t a = 1, b = 2;

    void add(uint64_t value) {
        a = splitmix64(a ^ value);
        b = splitmix64(b + value * 0x9E3779B97F4A7C15);
    }
    auto operator<=>(const Fingerprint &) const = default;
};

// Numbers things by their first use. forget() starts anew, for the next rank.
class Numbering {
public:
    explicit Numbering(size_t things) : number_of_(things, none) {}

    uint32_t of(uint32_t thing) {
        if (number_of_[thing] == none) {
            number_of_[thing] = static_cast<uint32_t>(used_.size());
            used_.push_back(thing);
        }
        return number_of_[thing];
    }
    std::span<const uint32_t> used() const { return used_; }
    std::span<const uint32_t> numbers() const { return number_of_; }
    void forget() {
        for (const uint32_t thing : used_) number_of_[thing] = none;
        used_.clear();
    }

private:
    std::vector<uint32_t> number_of_, used_;
};

class CensusTaker {
public:
    CensusTaker(const SimulatedCall &call, Merging merging)
        : call_(call), merging_(merging), peers_(call.problem.ranks) {}

    Done visit(uint32_t rank) {
        QCCL_TRY(const Schedule author,
                 emit(call_.algorithm, call_.problem.collective, call_.problem.team(rank)));
        if (rank == 0) {
            QCCL_TRY(begin(author));
        }
        const Fingerprint fingerprint = look_at(author);
        const auto [found, is_new] =
            known_.emplace(fingerprint, static_cast<uint32_t>(programs_.size()));
        if (is_new) {
            QCCL_TRY(RankProgram program,
                     make_program(author, call_, shape_, peers_.numbers(),
                                  static_cast<uint32_t>(peers_.used().size())));
            programs_.push_back(std::move(program));
        }
        program_of_.push_back(found->second);
        in_turn_.insert(in_turn_.end(), peers_.used().begin(), peers_.used().end());
        first_.push_back(in_turn_.size());
        peers_.forget();
        chunks_.forget();
        return {};
    }

    RankCensus take() && {
        std::vector<RankCensus::Acquaintance> sorted(in_turn_.size());
        for (size_t rank = 0; rank + 1 < first_.size(); rank++) {
            for (size_t i = first_[rank]; i < first_[rank + 1]; i++)
                sorted[i] = {in_turn_[i], static_cast<uint32_t>(i - first_[rank])};
            std::sort(sorted.begin() + static_cast<ptrdiff_t>(first_[rank]),
                      sorted.begin() + static_cast<ptrdiff_t>(first_[rank + 1]),
                      [](const auto &a, const auto &b) { return a.rank < b.rank; });
        }
        return {.programs = std::move(programs_),
                .program_of = std::move(program_of_),
                .first = std::move(first_),
                .in_turn = std::move(in_turn_),
                .sorted = std::move(sorted),
                .shape = shape_};
    }

private:
    // The schedules of all ranks have about as many steps as the first one.
    Done begin(const Schedule &first) {
        const auto shape_by = [&](bool rounds) {
            return CallGeometry::create(call_, first.chunks, first.outbox, rounds);
        };
        QCCL_TRY(shape_, shape_by(false));
        const double steps = static_cast<double>(first.steps.size()) * call_.problem.ranks *
                             static_cast<double>(shape_.instances());
        ignores_chunks_ = merging_ == Merging::similar ||
                          (merging_ == Merging::automatic && steps > most_exact_steps);
        if (ignores_chunks_) {
            QCCL_TRY(shape_, shape_by(true));
        }
        chunks_ = Numbering(first.chunks);
        return {};
    }

    Fingerprint look_at(const Schedule &author) {
        Fingerprint print;
        print.add(author.outbox);
        print.add(author.wires);
        for (const Step &step : author.steps) {
            print.add(uint64_t{static_cast<uint8_t>(step.verb)} << 32 | uint64_t{step.flags} << 16 |
                      step.sources);
            print.add(shape_.length_of(step.chunk));
            if (!computes(step.verb)) print.add(peers_.of(step.peer));
            for (const Slot slot : {step.dst, step.src}) print.add(name_of(slot));
            if (!ignores_chunks_) print.add(chunks_.of(step.chunk));
        }
        return print;
    }

    uint64_t name_of(Slot slot) {
        const bool is_chunk = !slot.is(SlotKind::none) && !slot.is(SlotKind::wire);
        if (ignores_chunks_) return slot.kind;
        return uint64_t{slot.kind} << 32 | (is_chunk ? chunks_.of(slot.index) : slot.index);
    }

    const SimulatedCall &call_;
    const Merging merging_;
    bool ignores_chunks_ = false;
    CallGeometry shape_;
    Numbering peers_, chunks_{0};
    std::map<Fingerprint, uint32_t> known_;
    std::vector<RankProgram> programs_;
    std::vector<uint32_t> program_of_, in_turn_;
    std::vector<size_t> first_{0};
};

} // namespace

uint32_t RankCensus::number_at(uint32_t rank, uint32_t peer) const {
    const auto begin = sorted.begin() + static_cast<ptrdiff_t>(first[rank]),
               end = sorted.begin() + static_cast<ptrdiff_t>(first[rank + 1]);
    const auto at = std::lower_bound(
        begin, end, peer, [](const Acquaintance &a, uint32_t wanted) { return a.rank < wanted; });
    return at->number;
}

Result<RankCensus> take_census(const SimulatedCall &call, Merging merging,
                               const std::function<void(uint64_t done, uint64_t of)> &progress) {
    CensusTaker taker(call, merging);
    for (uint32_t rank = 0; rank < call.problem.ranks; rank++) {
        QCCL_TRY(taker.visit(rank));
        if (progress) progress(rank + 1, call.problem.ranks);
    }
    return std::move(taker).take();
}

} // namespace qccl
