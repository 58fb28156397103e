// Computes what slow_twin.hpp declares: sums each chunk in the order that the numerical contract
// gives for the algorithm, and passes values through the scalar reference's codecs where ranks
// would encode them.
#include "slow_twin.hpp"

#include "rank_groups.hpp"
#include "sum_trees.hpp"
#include "twin_values.hpp"

#include "codec/chunk.hpp"
#include "codec/codec.hpp"
#include "kernels/cpu/cpu_tiers.hpp"

#include <algorithm>
#include <numeric>
#include <optional>

namespace qtest {

using namespace qccl;

namespace {

// A chunk of the tensor: elements [begin, begin + count).
struct Chunk {
    uint64_t begin, count;
};

class Twin {
public:
    Twin(const TwinCall &call, const std::vector<Bytes> &inputs)
        : call_(call), inputs_(inputs), top_(tiers_of(call.ranks, call.spots)),
          rings_(call.rings.empty()
                     ? std::vector<std::vector<uint32_t>>{ring_of(call.ranks, call.spots)}
                     : call.rings),
          ring_(rings_[0]), owners_(owners()) {}

    std::vector<Bytes> run() {
        const bool computes = P() > 1 && (reduces(call_.collective) || !call_.codec.is_lossless());
        if (!computes) return moved();
        std::vector<Bytes> outputs;
        for (uint32_t r = 0; r < P(); r++) outputs.emplace_back(recv_count(call_, r) * bytes());
        switch (call_.collective) {
        case Collective::all_reduce: all_reduce(outputs); break;
        case Collective::reduce_scatter:
            for (uint32_t r = 0; r < P(); r++) store(outputs[r], 0, finished_sum(r));
            break;
        case Collective::all_gather:
            for (uint32_t c = 0; c < P(); c++) share_encoded(outputs, c, input(c, c), c, 0);
            break;
        case Collective::broadcast: broadcast(outputs); break;
        case Collective::barrier: break;
        case Collective::reduce: reduce(outputs[call_.root]); break;
        case Collective::gather:
            for (uint32_t c = 0; c < P(); c++)
                store(outputs[call_.root], c * call_.count, received(c, input(c, c), c, 0));
            break;
        case Collective::all_to_all: all_to_all(outputs); break;
        case Collective::scan:
        case Collective::exscan: prefixes(outputs); break;
        case Collective::send:
            store(outputs[(call_.root + 1) % P()], 0,
                  travelled(call_.type, input(call_.root, 0), 0, call_.root, 0));
            break;
        case Collective::scatter:
            for (uint32_t c = 0; c < P(); c++)
                store(outputs[c], 0,
                      received(c, input(call_.root, c), call_.root, scatter_ordinal(c)));
            break;
        }
        return outputs;
    }

private:
    uint32_t P() const { return call_.ranks; }
    bool is_ring() const { return call_.algorithm.starts_with("ring"); }
    // Number of rings, by which chunks go in turn.
    uint32_t R() const {
        return call_.algorithm == "ring:rings=all" ? static_cast<uint32_t>(rings_.size()) : 1;
    }
    const std::vector<uint32_t> &ring_of_chunk(uint32_t c) const { return rings_[c % R()]; }
    size_t bytes() const { return type_bytes(call_.type); }
    DataType sum_type() const { return accumulator_of(call_.type); }

    // Calls that only copy keep all bits, also those of a NaN.
    std::vector<Bytes> moved() const {
        if (P() == 1) return {call_.collective == Collective::exscan ? Bytes() : inputs_[0]};
        if (call_.collective == Collective::broadcast) return std::vector(P(), inputs_[call_.root]);
        std::vector<Bytes> outputs(P());
        if (call_.collective == Collective::send) {
            outputs[(call_.root + 1) % P()] = inputs_[call_.root];
            return outputs;
        }
        if (call_.collective == Collective::scatter) {
            for (uint32_t c = 0; c < P(); c++) outputs[c] = input(call_.root, c).bytes;
            return outputs;
        }
        if (call_.collective == Collective::all_to_all) {
            for (Bytes &output : outputs) output.resize(P() * call_.count * bytes());
            all_to_all(outputs);
            return outputs;
        }
        Bytes all;
        for (const Bytes &input : inputs_) all.insert(all.end(), input.begin(), input.end());
        if (call_.collective == Collective::gather)
            outputs[call_.root] = all;
        else
            outputs.assign(P(), all);
        return outputs;
    }

    uint32_t chunks() const {
        if (call_.collective == Collective::send) return 1;
        if (is_ring() && call_.collective == Collective::broadcast) return R();
        if (is_ring()) return R() * P();
        if (call_.algorithm == "tree:shape=double") return 2;
        if (is_hierarchy()) return static_cast<uint32_t>(owners_.size());
        const bool is_whole = call_.algorithm == "oneshot" || call_.algorithm == "doubling" ||
                              call_.algorithm == "chain";
        return is_whole || call_.algorithm == "tree" ? 1 : P();
    }

    // Values that a chunk has together: those of a bucket, or that are rotated together.
    static uint64_t unit_of(const Codec &codec) {
        return std::max({uint64_t{codec.bucket}, uint64_t{codec.rotation}, uint64_t{1}});
    }

    // Cuts the vector at the codec's grain, as evenly as the grain allows.
    Chunk chunk(uint32_t c) const {
        if (has_part_per_rank(call_.collective)) return {c * call_.count, call_.count};
        const uint64_t n = call_.count, parts = chunks();
        const uint64_t A =
            std::lcm(std::lcm(unit_of(call_.codec), unit_of(call_.inner_codec)), uint64_t{64});
        const uint64_t L = ((n + parts - 1) / parts + A - 1) / A * A;
        const uint64_t begin = std::min(n, c * L);
        return {begin, std::min(n, (c + 1) * L) - begin};
    }

    // Returns the rank's values of the chunk as the caller gave them.
    Values input(uint32_t rank, uint32_t c) const {
        Chunk part = chunk(c);
        if (row_of(call_.collective).gathers) part.begin = 0;
        const std::byte *const first = inputs_[rank].data() + part.begin * bytes();
        return {call_.type, Bytes(first, first + part.count * bytes())};
    }

    // Returns in format `out` what a receiver decodes from the bytes that `rank` encodes as its
    // `ordinal`-th.
    Values travelled(DataType out, const Values &values, uint32_t c, uint32_t rank,
                     uint32_t ordinal) const {
        return travelled(call_.codec, out, values, c, rank, ordinal);
    }
    Values travelled(const Codec &codec, DataType out, const Values &values, uint32_t c,
                     uint32_t rank, uint32_t ordinal) const {
        const Chunk part = chunk(c);
        const PayloadLayout layout = payload_layout(codec, call_.type, part.count);
        const Noise noise{noise_key(call_.seed, rank, ordinal), call_.number, part.begin};
        const ChunkRange range{&codec, &layout, call_.type, part.count, 0, part.count, noise};
        Bytes payload(layout.bytes);
        Values decoded{out, Bytes(part.count * type_bytes(out))};
        scalar_kernels().encode(range, noise, values.type, values.bytes.data(), payload.data());
        scalar_kernels().decode(range, payload.data(), out, decoded.bytes.data(), false);
        return decoded;
    }

    // Adds the next summand.
    void add(std::optional<Values> &sum, const Values &more) const {
        if (!sum)
            sum = as(sum_type(), more);
        else
            scalar_kernels().reduce(call_.op, sum_type(), sum->bytes.data(), more.type,
                                    more.bytes.data(), more.count());
    }

    // Adds in the order of ranks 0 to P - 1. The owner's own values stand at their place and are
    // exact.
    Values sum_by_rank(uint32_t c, uint32_t owner) const {
        std::optional<Values> sum;
        for (uint32_t r = 0; r < P(); r++) {
            const uint32_t distance = (owner + P() - r) % P();
            if (r == owner)
                add(sum, input(r, c));
            else
                add(sum, travelled(sum_type(), input(r, c), c, r, distance - 1));
        }
        return *sum;
    }

    // Sums from position `first` once round the ring; each hop adds its own values to what it
    // received.
    Values sum_by_ring(uint32_t c, uint32_t first) const {
        const std::vector<uint32_t> &ring = ring_of_chunk(c);
        Values passed = input(ring[first], c);
        for (uint32_t hop = 1; hop < P(); hop++) {
            const uint32_t sender = ring[(first + hop - 1) % P()];
            std::optional<Values> sum =
                travelled(sum_type(), passed, c, sender, ring_ordinal(c, sender, hop));
            add(sum, input(ring[(first + hop) % P()], c));
            passed = *sum;
        }
        return passed;
    }

    // Returns the ordinal of the rank's encode of the chunk in a round. Before it the rank has sent
    // by all rings in the rounds before, and by the rings before the chunk's in this round, if
    // those rings had a chunk to send.
    uint32_t ring_ordinal(uint32_t c, uint32_t rank, uint32_t round) const {
        const bool is_chain = is_hierarchy() || call_.algorithm == "chain";
        if (is_chain && call_.collective == Collective::reduce) return 0; // one chunk
        if (call_.collective != Collective::reduce_scatter) return (round - 1) * R() + c % R();
        uint32_t sent = 0;
        for (uint32_t i = 1; i <= round; i++)
            for (uint32_t k = 0; k < (i == round ? c % R() : R()); k++) {
                const auto at = std::ranges::find(rings_[k], rank) - rings_[k].begin();
                const uint32_t end = (static_cast<uint32_t>(at) + P() - i) % P();
                sent += rings_[k][end] % R() == k;
            }
        return sent;
    }

    // Returns what the rank sends to its parent or, at the root, the result.
    Values sum_by_tree(const SumTree &tree, uint32_t c, uint32_t rank) const {
        std::optional<Values> sum;
        each_operand(
            tree, rank, [&](uint32_t own) { add(sum, input(own, c)); },
            [&](uint32_t child) {
                add(sum, travelled(sum_type(), sum_by_tree(tree, c, child), c, child,
                                   tree.ordinal[child]));
            });
        return *sum;
    }
    SumTree tree(uint32_t c) const {
        const SumTree by_position = sum_tree(call_.algorithm, P(), c);
        return call_.algorithm == "halving" ? by_position : placed(by_position, ring_from_root());
    }
    // Returns the ring, turned so that it begins at the root if there is one.
    std::vector<uint32_t> ring_from_root() const {
        std::vector<uint32_t> ring = ring_;
        if (row_of(call_.collective).has_root)
            // Clang 14 does not compile ranges::rotate.
            std::rotate(ring.begin(), std::ranges::find(ring, call_.root), ring.end());
        return ring;
    }

    // ---- hierarchy: nearest rounding only, so that ordinals make no difference

    bool is_hierarchy() const { return call_.algorithm.starts_with("hierarchy"); }
    // A hierarchy of one tier is the ring of a reduce-scatter, with its ordinals.
    bool is_flat_ring() const {
        return is_hierarchy() && top_.depth() == 1 && choice("outer", "ring") == "ring";
    }
    std::string_view choice(std::string_view key, std::string_view usual) const {
        const std::string_view text = call_.algorithm;
        const size_t at = text.find(std::string(key) + "=");
        if (at == text.npos) return usual;
        const std::string_view word = text.substr(at + key.size() + 1);
        return word.substr(0, word.find(','));
    }
    bool has_leaders() const { return choice("share", "every") == "leader"; }

    // Appends the ranks at the same places in every group below each part of the top group.
    void add_owners(std::vector<uint32_t> &found, std::vector<uint32_t> shares) const {
        if (shares.size() + 1 < top_.depth()) {
            const auto depth = static_cast<uint32_t>(shares.size()) + 1;
            const uint32_t fewest = has_leaders() ? 1 : top_.fewest_parts(depth);
            shares.push_back(0);
            for (; shares.back() < fewest; shares.back()++) add_owners(found, shares);
            return;
        }
        for (const RankGroup &part : top_.parts) {
            const RankGroup *at = &part;
            for (size_t level = shares.size(); level-- > 0;) at = &at->parts[shares[level]];
            found.push_back(at->rank);
        }
    }

    // Returns the rank that ends up with each chunk; in a broadcast, the rank that has the chunk;
    // in a reduce, the rank of the root's part of the top group that sums it.
    std::vector<uint32_t> owners() const {
        if (has_part_per_rank(call_.collective)) return all_ranks(P());
        std::vector<uint32_t> found;
        add_owners(found, {});
        if (!row_of(call_.collective).has_root) return found;
        const size_t each = found.size() / top_.size(); // owners in a part of the top group
        if (each == 1 || call_.collective == Collective::broadcast)
            return std::vector(each, call_.root);
        std::erase_if(found, [&](uint32_t rank) {
            return top_.part_with(rank) != top_.part_with(call_.root);
        });
        return found;
    }

    // Returns the sum of what `size` members have, made within their group and ending at `owner`.
    template <class Member>
    Values sum_of_group(uint32_t c, std::string_view how, const Codec &codec, uint32_t size,
                        uint32_t owner, Member member) const {
        const auto sent = [&](const Values &values) {
            return travelled(codec, sum_type(), values, c, 0, 0);
        };
        std::optional<Values> sum;
        if (how == "by rank") {
            for (uint32_t at = 0; at < size; at++)
                add(sum, at == owner ? member(at) : sent(member(at)));
            return *sum;
        }
        if (how == "direct") {
            add(sum, member(owner));
            for (uint32_t at = 0; at < size; at++)
                if (at != owner) add(sum, sent(member(at)));
            return *sum;
        }
        if (how == "ring") {
            Values passed = member((owner + 1) % size);
            for (uint32_t i = 2; i <= size; i++) {
                sum = sent(passed);
                add(sum, member((owner + i) % size));
                passed = *sum;
            }
            return passed;
        }
        const bool is_halving = how == "halving";
        const SumTree tree = is_halving ? halving_tree(size, owner) : binomial_tree(size);
        const auto member_at = [&](uint32_t at) {
            return member(is_halving ? at : (owner + at) % size);
        };
        const auto sum_at = [&](uint32_t at, const auto &again) -> Values {
            std::optional<Values> below;
            each_operand(
                tree, at, [&](uint32_t own) { add(below, member_at(own)); },
                [&](uint32_t child) { add(below, sent(again(child, again))); });
            return *below;
        };
        return sum_at(tree.root, sum_at);
    }

    Values sum_within(const RankGroup &group, uint32_t c, uint32_t owner) const {
        if (group.parts.empty()) return input(group.rank, c);
        if (group.size() == 1) return sum_within(group.parts[0], c, owner);
        const RankGroup *home = &top_; // the group of that depth with the owner in it
        while (home->depth() > group.depth()) home = &home->parts[home->part_with(owner)];
        const uint32_t end =
            group.has(owner) ? group.part_with(owner) : home->part_with(owner) % group.size();
        const bool is_top = group.depth() == top_.depth();
        std::string_view how = choice("outer", "ring");
        if (group.depth() == 1 && !is_top) {
            how = choice("inner", "direct");
            if (how == "direct") how = "by rank";
        }
        return sum_of_group(c, how, is_top ? call_.codec : call_.inner_codec, group.size(), end,
                            [&](uint32_t at) { return sum_within(group.parts[at], c, owner); });
    }

    // Sums what all ranks' bytes decode to, each rank's own included. In an all-reduce each rank
    // encodes once; in a reduce-scatter it encodes once for each owner, the rank itself being the
    // last.
    Values sum_of_all(uint32_t c) const {
        std::optional<Values> sum;
        for (uint32_t r = 0; r < P(); r++) {
            const uint32_t ordinal =
                call_.collective == Collective::reduce_scatter ? (c + P() - r - 1) % P() : 0;
            add(sum, travelled(sum_type(), input(r, c), c, r, ordinal));
        }
        return *sum;
    }

    // Returns the sum of the positions [begin, end): of two halves, each encoded by its first rank
    // and decoded.
    Values sum_by_doubling(uint32_t begin, uint32_t end) const {
        if (end - begin == 1) return input(ring_[begin], 0);
        const uint32_t middle = end - (end - begin) / 2;
        std::optional<Values> sum;
        for (const auto &[first, last] : {std::pair(begin, middle), std::pair(middle, end)}) {
            uint32_t ordinal = 0;
            while ((1U << ordinal) < last - first) ordinal++;
            add(sum, travelled(sum_type(), sum_by_doubling(first, last), 0, ring_[first], ordinal));
        }
        return *sum;
    }

    Values exact_sum(uint32_t c, uint32_t ranks) const {
        std::vector<Values> summands;
        for (uint32_t r = 0; r < ranks; r++) summands.push_back(input(r, c));
        return summed_exactly(summands, call_.op == RedOp::avg ? P() : 1);
    }

    Values finished_sum(uint32_t c) const {
        if (call_.codec.sums_exactly) return exact_sum(c, P());
        const bool scatters = call_.collective == Collective::reduce_scatter;
        if (call_.algorithm == "doubling") return finished(sum_by_doubling(0, P()));
        if (call_.algorithm == "chain") {
            const auto last = std::ranges::find(ring_, call_.root) - ring_.begin();
            return finished(sum_by_ring(c, (static_cast<uint32_t>(last) + 1) % P()));
        }
        if (is_flat_ring()) return finished(sum_by_ring(c, (owners_[c] + 1) % P()));
        if (is_hierarchy()) return finished(sum_within(top_, c, owners_[c]));
        if (sums_by_tree(call_.algorithm)) return finished(sum_by_tree(tree(c), c, tree(c).root));
        if (is_ring() && !scatters) return finished(sum_by_ring(c, c / R()));
        if (is_ring()) {
            const auto end = std::ranges::find(ring_of_chunk(c), c) - ring_of_chunk(c).begin();
            return finished(sum_by_ring(c, (static_cast<uint32_t>(end) + 1) % P()));
        }
        return finished(call_.algorithm == "oneshot" ? sum_of_all(c) : sum_by_rank(c, c));
    }
    Values finished(Values sum) const {
        if (call_.op == RedOp::avg)
            scalar_kernels().divide(sum_type(), sum.bytes.data(), sum.count(), P());
        return sum;
    }

    void store(Bytes &output, uint64_t begin, const Values &values) const {
        const Values stored = as(call_.type, values);
        std::copy(stored.bytes.begin(), stored.bytes.end(),
                  output.begin() + static_cast<long>(begin * bytes()));
    }
    void share(std::vector<Bytes> &outputs, const Chunk &part, const Values &values) const {
        for (Bytes &output : outputs) store(output, part.begin, values);
    }
    // Makes the final encode; all ranks store what it decodes to.
    void share_encoded(std::vector<Bytes> &outputs, uint32_t c, const Values &values,
                       uint32_t owner, uint32_t ordinal) const {
        share(outputs, chunk(c), travelled(call_.type, values, c, owner, ordinal));
        if (call_.codec.owner == OwnerKeeps::exact) store(outputs[owner], chunk(c).begin, values);
    }

    // The rank that makes a chunk's sum, and the ordinal of its encode of the result.
    struct SumEnd {
        uint32_t owner, ordinal;
    };
    SumEnd end_of(uint32_t c) const {
        if (is_hierarchy()) return {owners_[c], P() - 1};
        if (sums_by_tree(call_.algorithm)) return {tree(c).root, tree(c).final_ordinal};
        if (!is_ring()) return {c, P() - 1};
        const uint32_t owner = ring_of_chunk(c)[(c / R() + P() - 1) % P()];
        return {owner, ring_ordinal(c, owner, P())};
    }

    void all_reduce(std::vector<Bytes> &outputs) {
        if (call_.algorithm == "oneshot" || call_.algorithm == "doubling")
            return share(outputs, chunk(0), finished_sum(0));
        for (uint32_t c = 0; c < chunks(); c++)
            share_encoded(outputs, c, finished_sum(c), end_of(c).owner, end_of(c).ordinal);
    }

    void reduce(Bytes &output) {
        for (uint32_t c = 0; c < chunks(); c++) {
            const bool ends_there = call_.algorithm == "oneshot" || call_.algorithm == "chain";
            const SumEnd end = ends_there ? SumEnd{call_.root, 0} : end_of(c);
            store(output, chunk(c).begin, received(c, finished_sum(c), end.owner, end.ordinal));
        }
    }

    // Returns what the rank that needs the values gets of them: the root has its own as they are.
    Values received(uint32_t c, const Values &values, uint32_t owner, uint32_t ordinal) const {
        const bool has_them =
            owner == call_.root && (call_.collective != Collective::scatter || c == call_.root);
        return has_them ? values : travelled(call_.type, values, c, owner, ordinal);
    }

    // ---- Scan and exscan

    // A sum on its way, and the encode that it has been through or is about to go through.
    struct Prefix {
        Values values;
        uint32_t encoder, ordinal = 0;
        bool is_encoded = false, is_single = true;
    };
    Values sent(DataType out, const Prefix &prefix) const {
        return travelled(out, prefix.values, 0, prefix.encoder, prefix.ordinal);
    }
    Values stored(const Prefix &prefix) const {
        return prefix.is_encoded ? sent(call_.type, prefix) : as(call_.type, prefix.values);
    }
    Prefix prefix_of(uint32_t rank) const { return {.values = input(rank, 0), .encoder = rank}; }

    void prefixes(std::vector<Bytes> &outputs) const {
        std::vector<Prefix> found;
        if (call_.algorithm == "oneshot" || call_.codec.sums_exactly)
            found = prefixes_at_once();
        else if (call_.algorithm == "chain")
            found = prefixes_by_chain();
        else
            found = prefixes_by_doubling();
        for (uint32_t r = 0; r < P(); r++)
            if (!outputs[r].empty()) store(outputs[r], 0, stored(found[r]));
    }

    std::vector<Prefix> prefixes_at_once() const {
        std::vector<Prefix> found;
        for (uint32_t r = 0; r < P(); r++) {
            const uint32_t ranks = covered_ranks(call_.collective, r, P());
            Prefix prefix = prefix_of(0);
            prefix.is_encoded = ranks == 1;
            std::optional<Values> sum;
            for (uint32_t g = 0; g < ranks; g++) add(sum, sent(sum_type(), prefix_of(g)));
            if (ranks > 1) prefix.values = *sum;
            if (ranks > 1 && call_.codec.sums_exactly) prefix.values = exact_sum(0, ranks);
            found.push_back(prefix);
        }
        return found;
    }

    // An exscan's results are what the rank before has encoded.
    std::vector<Prefix> prefixes_by_chain() const {
        std::vector<Prefix> sums;
        for (uint32_t r = 0; r < P(); r++) {
            Prefix prefix = prefix_of(r);
            if (r > 0) {
                std::optional<Values> sum = sent(sum_type(), sums.back());
                add(sum, prefix.values);
                prefix.values = *sum;
            }
            prefix.is_encoded = r + 1 < P();
            sums.push_back(prefix);
        }
        if (call_.collective == Collective::exscan) sums.insert(sums.begin(), prefix_of(0));
        return sums;
    }

    // In an exscan, ranks from 1 on sum what the ranks before them have encoded.
    std::vector<Prefix> prefixes_by_doubling() const {
        const bool is_exscan = call_.collective == Collective::exscan;
        const uint32_t first = is_exscan ? 1 : 0;
        std::vector<Prefix> all{prefix_of(0)};
        for (uint32_t r = 1; r < P(); r++) all.push_back(prefix_of(r - first));
        std::vector<uint32_t> encodes(P(), is_exscan ? 1 : 0); // of each rank
        const auto encode = [&](uint32_t rank) {
            if (all[rank].is_encoded) return;
            all[rank].is_encoded = true;
            all[rank].ordinal = encodes[rank]++;
        };
        for (uint32_t r = 0; is_exscan && r < P(); r++) all[r].is_encoded = true;
        for (uint32_t distance = 1; distance < P(); distance *= 2) {
            for (uint32_t r = first; r + distance < P(); r++) encode(r);
            const std::vector<Prefix> before = all;
            for (uint32_t r = first + distance; r < P(); r++) {
                if (all[r].is_single) encode(r);
                std::optional<Values> sum = sent(sum_type(), before[r - distance]);
                add(sum, all[r].is_encoded ? sent(sum_type(), all[r]) : all[r].values);
                all[r] = {.values = *sum, .encoder = r, .is_single = false};
            }
        }
        return all;
    }

    // Returns the rank's values for another rank.
    Values part_for(uint32_t rank, uint32_t other) const {
        const std::byte *const first = inputs_[rank].data() + other * call_.count * bytes();
        return {call_.type, Bytes(first, first + call_.count * bytes())};
    }

    void all_to_all(std::vector<Bytes> &outputs) const {
        for (uint32_t from = 0; from < P(); from++)
            for (uint32_t to = 0; to < P(); to++) {
                const Values part = part_for(from, to);
                const uint32_t chunk = (from + to) % P();
                const bool stays = from == to || call_.codec.is_lossless();
                const uint32_t ordinal =
                    part_ordinal(call_.algorithm, P(), (to + P() - from) % P());
                store(outputs[to], from * call_.count,
                      stays ? part : travelled(call_.type, part, chunk, from, ordinal));
            }
    }

    // The root encodes the parts in the order in which it sends them.
    uint32_t scatter_ordinal(uint32_t part) const {
        if (!sums_by_tree(call_.algorithm)) return (part + P() - call_.root - 1) % P();
        const auto order = scatter_order(call_.algorithm, ring_from_root());
        return static_cast<uint32_t>(std::ranges::find(order, part) - order.begin());
    }

    void broadcast(std::vector<Bytes> &outputs) {
        for (uint32_t c = 0; c < chunks(); c++) {
            const uint32_t distance = (c + P() - call_.root) % P();
            const uint32_t ordinal = call_.algorithm == "direct" ? (distance + P() - 1) % P() : c;
            share_encoded(outputs, c, input(call_.root, c), call_.root, ordinal);
        }
    }

    const TwinCall &call_;
    const std::vector<Bytes> &inputs_;
    const RankGroup top_;
    const std::vector<std::vector<uint32_t>> rings_;
    const std::vector<uint32_t> &ring_;  // the first, by position
    const std::vector<uint32_t> owners_; // by chunk of a hierarchy
};

} // namespace

std::vector<Bytes> slow_twin(const TwinCall &call, const std::vector<Bytes> &inputs) {
    const bool is_shared = call.codec.shares_scales() && call.ranks > 1;
    return is_shared ? shared_twin(call, inputs) : Twin(call, inputs).run();
}

} // namespace qtest
