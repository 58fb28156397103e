// The census compares schedules by hashes, and keeps one program for each hash. The classes are
// found by color refinement, which merges ranks and links of one color.
#include "plan/simulator/rank_classes.hpp"

#include "codec/codec.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <unordered_map>

namespace qccl {

// ---- Census of ranks

namespace {

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
    explicit Numbering(size_t things) : number_of_(things, RankClasses::none) {}

    uint32_t of(uint32_t thing) {
        if (number_of_[thing] == RankClasses::none) {
            number_of_[thing] = static_cast<uint32_t>(used_.size());
            used_.push_back(thing);
        }
        return number_of_[thing];
    }
    std::span<const uint32_t> used() const { return used_; }
    std::span<const uint32_t> numbers() const { return number_of_; }
    void forget() {
        for (const uint32_t thing : used_) number_of_[thing] = RankClasses::none;
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

// ---- Classes

namespace {

uint64_t mix(uint64_t a, uint64_t b) { return splitmix64(a ^ splitmix64(b)); }
uint64_t bits_of(double value) {
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

// Colors ranks, links and groups of cores, each by its relations to the others, until no color
// splits into several any more.
class Coloring {
public:
    Coloring(const RankCensus &census, const Fabric &fabric, Merging merging)
        : census_(census), fabric_(fabric), ranks_(census.ranks()), links_(fabric.links()),
          groups_(fabric.core_groups()) {
        for (uint32_t rank = 0; rank < ranks_.size(); rank++)
            ranks_[rank] = mix(census.program_of[rank], merging == Merging::none ? rank + 1 : 0);
        for (size_t before = 0, now = count(); now != before; now = count()) {
            before = now;
            color_links();
            if (now == ranks_.size()) break;
            color_ranks();
        }
    }

    uint64_t of_rank(uint32_t rank) const { return ranks_[rank]; }
    uint64_t of_link(uint32_t link) const { return links_[link]; }
    uint64_t of_group(uint32_t group) const { return groups_[group]; }

private:
    size_t count() const {
        std::vector<uint64_t> sorted(ranks_);
        std::sort(sorted.begin(), sorted.end());
        return static_cast<size_t>(std::unique(sorted.begin(), sorted.end()) - sorted.begin());
    }

    MessageRoute route_between(uint32_t from, uint32_t to) const {
        return fabric_.route(from, to, census_.shape.is_eager());
    }
    static uint64_t color_of(const MessageRoute::MessageCost &work) {
        return mix(bits_of(work.message_ns), bits_of(work.byte_ns));
    }

    // The color is a sum over the flows, which does not depend on their order.
    void color_links() {
        for (uint32_t link = 0; link < links_.size(); link++)
            links_[link] =
                mix(bits_of(fabric_.bytes_per_ns(link)), bits_of(fabric_.burst_bytes(link)));
        for (uint32_t group = 0; group < groups_.size(); group++)
            groups_[group] = bits_of(fabric_.cores(group));
        for (uint32_t rank = 0; rank < ranks_.size(); rank++) {
            groups_[fabric_.core_group(rank)] += mix(ranks_[rank], 1);
            const auto peers = census_.peers(rank);
            for (uint32_t k = 0; k < peers.size(); k++) {
                const MessageRoute route = route_between(rank, peers[k]);
                for (uint32_t at = 0; at < route.count; at++)
                    links_[route.numbers[at]] += mix(mix(ranks_[rank], k), at + 2);
            }
        }
    }

    void color_ranks() {
        std::vector<uint64_t> colors(ranks_.size());
        for (uint32_t rank = 0; rank < ranks_.size(); rank++) {
            uint64_t color = mix(ranks_[rank], groups_[fabric_.core_group(rank)]);
            for (const uint32_t peer : census_.peers(rank)) {
                const MessageRoute route = route_between(rank, peer);
                color = mix(color, ranks_[peer]);
                color = mix(color, census_.number_at(peer, rank));
                color = mix(color, bits_of(route.latency_ns) ^ route.is_by_reference);
                color = mix(color, color_of(route.send) + 3 * color_of(route.recv));
                for (const uint32_t link : route.links()) color = mix(color, links_[link]);
            }
            colors[rank] = color;
        }
        ranks_ = std::move(colors);
    }

    const RankCensus &census_;
    const Fabric &fabric_;
    std::vector<uint64_t> ranks_, links_, groups_;
};

class Merger {
public:
    Merger(RankCensus census, const Fabric &fabric, Merging merging, double byte_share)
        : census_(std::move(census)), fabric_(fabric),
          colors_(census_, fabric, merging), found_{.class_of = {},
                                                    .classes = {},
                                                    .peers = {},
                                                    .uses = {},
                                                    .links = {},
                                                    .programs = {},
                                                    .shape = census_.shape},
          byte_share_(byte_share) {}

    RankClasses run() {
        number_classes();
        for (RankClasses::Class &each : found_.classes) add_peers(each);
        add_cores();
        if (found_.classes.size() != census_.ranks()) weigh();
        count_links();
        found_.programs = std::move(census_.programs);
        return std::move(found_);
    }

private:
    MessageRoute route_between(uint32_t from, uint32_t to) const {
        return fabric_.route(from, to, census_.shape.is_eager());
    }

    void number_classes() {
        std::unordered_map<uint64_t, uint32_t> known;
        for (uint32_t rank = 0; rank < census_.ranks(); rank++) {
            const auto [at, is_new] =
                known.emplace(colors_.of_rank(rank), static_cast<uint32_t>(found_.classes.size()));
            if (is_new)
                found_.classes.push_back({.first_rank = rank, .program = census_.program_of[rank]});
            found_.classes[at->second].ranks++;
            found_.class_of.push_back(at->second);
        }
    }

    void add_peers(RankClasses::Class &each) {
        each.peers_first = static_cast<uint32_t>(found_.peers.size());
        for (const uint32_t rank : census_.peers(each.first_rank)) {
            const MessageRoute route = route_between(each.first_rank, rank);
            RankClasses::ClassPeer peer{.peer_class = found_.class_of[rank],
                                        .number = census_.number_at(rank, each.first_rank),
                                        .uses_first = static_cast<uint32_t>(found_.uses.size()),
                                        .latency_ns = route.latency_ns,
                                        .rendezvous_ns = route.rendezvous_ns,
                                        .eager_bytes = route.eager_bytes,
                                        .send = route.send,
                                        .recv = route.recv,
                                        .is_by_reference = route.is_by_reference};
            if (!route.is_by_reference) {
                peer.send.byte_ns *= byte_share_;
                peer.recv.byte_ns *= byte_share_;
            }
            for (const uint32_t link : route.links()) found_.uses.push_back({merged(link), 1});
            peer.uses_last = static_cast<uint32_t>(found_.uses.size());
            found_.peers.push_back(peer);
        }
    }

    uint32_t merged(uint32_t link) {
        const auto [at, is_new] = link_of_color_.emplace(
            colors_.of_link(link), static_cast<uint32_t>(found_.links.size()));
        if (is_new)
            found_.links.push_back({.capacity = fabric_.bytes_per_ns(link),
                                    .burst_bytes = fabric_.burst_bytes(link),
                                    .first = link});
        return at->second;
    }

    void add_cores() {
        std::vector<uint32_t> ranks_of(fabric_.core_groups());
        for (uint32_t rank = 0; rank < census_.ranks(); rank++)
            ranks_of[fabric_.core_group(rank)]++;
        std::map<uint64_t, uint32_t> known; // by color
        for (RankClasses::Class &each : found_.classes) {
            const uint32_t group = fabric_.core_group(each.first_rank);
            if (fabric_.cores(group) >= ranks_of[group]) continue;
            const auto [at, is_new] =
                known.emplace(colors_.of_group(group), static_cast<uint32_t>(found_.links.size()));
            if (is_new)
                found_.links.push_back(
                    {.capacity = fabric_.cores(group), .first = group, .is_cores = true});
            each.core = at->second;
            each.core_weight = 1;
        }
    }

    struct FlowKey {
        uint32_t link, of_class, peer;
        bool operator==(const FlowKey &) const = default;
    };
    struct FlowHash {
        size_t operator()(const FlowKey &key) const {
            return mix(uint64_t{key.link} << 32 | key.of_class, key.peer);
        }
    };

    // Counts the flows of the same class on each link that a class's first rank uses, and the ranks
    // of the class on the first rank's cores.
    void weigh() {
        std::unordered_map<FlowKey, double *, FlowHash> counted;
        for (uint32_t c = 0; c < found_.classes.size(); c++) {
            RankClasses::Class &each = found_.classes[c];
            each.core_weight = 0;
            const auto peers = census_.peers(each.first_rank);
            for (uint32_t k = 0; k < peers.size(); k++) {
                const MessageRoute route = route_between(each.first_rank, peers[k]);
                const uint32_t first = found_.peer(c, k).uses_first;
                for (uint32_t at = 0; at < route.count; at++) {
                    found_.uses[first + at].weight = 0;
                    counted[{route.numbers[at], c, k}] = &found_.uses[first + at].weight;
                }
            }
        }
        for (uint32_t rank = 0; rank < census_.ranks(); rank++) {
            RankClasses::Class &own = found_.classes[found_.class_of[rank]];
            own.core_weight += fabric_.core_group(rank) == fabric_.core_group(own.first_rank);
            const auto peers = census_.peers(rank);
            for (uint32_t k = 0; k < peers.size(); k++) {
                const MessageRoute route = route_between(rank, peers[k]);
                for (const uint32_t link : route.links())
                    if (const auto at = counted.find({link, found_.class_of[rank], k});
                        at != counted.end())
                        *at->second += 1;
            }
        }
    }

    void count_links() {
        for (uint32_t link = 0; link < fabric_.links(); link++)
            if (const auto at = link_of_color_.find(colors_.of_link(link));
                at != link_of_color_.end())
                found_.links[at->second].count++;
        for (RankClasses::LinkGroup &link : found_.links)
            if (link.is_cores)
                for (uint32_t group = 0; group < fabric_.core_groups(); group++)
                    link.count += colors_.of_group(group) == colors_.of_group(link.first);
    }

    RankCensus census_;
    const Fabric &fabric_;
    const Coloring colors_;
    RankClasses found_;
    const double byte_share_;
    std::unordered_map<uint64_t, uint32_t> link_of_color_;
};

} // namespace

Result<RankClasses> find_rank_classes(const SimulatedCall &call, const Fabric &fabric,
                                      Merging merging, const Progress &progress) {
    if (fabric.ranks() != call.problem.ranks)
        return invalid_argument("the fabric has %u ranks, and the call has %u", fabric.ranks(),
                                call.problem.ranks);
    QCCL_TRY(RankCensus census, take_census(call, merging, progress));
    RankClasses classes =
        Merger(std::move(census), fabric, merging, call.speeds.network_byte_share).run();
    classes.call_ns = call.speeds.call_ns;
    return classes;
}

} // namespace qccl
