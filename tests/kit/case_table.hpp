// The table of cases for every test that runs collectives: all supported combinations of
// collective, algorithm, type, operation, codec and count.
#pragma once

#include "sample.hpp"
#include "slow_twin.hpp"

#include "coll/algorithm.hpp"

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace qtest {

using namespace qccl;

inline constexpr auto &ops = all_ops;
inline constexpr const char *codecs[] = {"none",
                                         "fp16",
                                         "bf16",
                                         "bf16:round=stochastic",
                                         "fp8e4m3",
                                         "fp8e5m2",
                                         "fp8e4m3:block=64",
                                         "int8",
                                         "int8:owner=exact",
                                         "int4",
                                         "int3:block=100",
                                         "int2:round=stochastic",
                                         "int4:block=16,round=dither",
                                         "int6:block=1",
                                         "mxfp6e2m3",
                                         "mxfp4:scale=ocp,round=stochastic",
                                         "nvfp4:bucket=64,scale=ceil",
                                         "nvfp4:bucket=all",
                                         "onebit:bucket=100",
                                         "terngrad:bucket=100,clip=1.5",
                                         "norm:bits=4,bucket=100,round=nearest",
                                         "norm:bits=5,norm=linf,levels=exponential",
                                         "topk:ratio=0.01",
                                         "dummy:ratio=0.1",
                                         "dgc:ratio=0.02",
                                         "minmax:bits=4,bucket=64",
                                         "minmax:bits=8,bucket=33,round=stochastic",
                                         "minmax:bits=2,bucket=all",
                                         "minmax:bits=6,bucket=100,skip_incomplete=1,round=dither",
                                         "lossless",
                                         "exact",
                                         "tbq:threshold=0.5",
                                         "bound:abs=0.01",
                                         "bound:rel=0.003",
                                         "bound:pw=0.01",
                                         "bound:rel=0.02,entropy=1",
                                         "int4:entropy=1,round=dither",
                                         "int4:rotate=128",
                                         "minmax:bits=5,bucket=64,rotate=64,round=stochastic",
                                         "minmax:bits=5,bucket=100,skip_incomplete=1"};
inline constexpr uint64_t counts[] = {0, 1, 31, 32, 33, 1000, 4097, 20011};
// Calls visit(call) for every combination that the library accepts. How many there are does not
// depend on `ranks`.
template <class Visitor> void each_case(uint32_t ranks, Visitor visit) {
    std::vector<Codec> parsed;
    for (const char *codec : codecs) parsed.push_back(*parse_codec(codec));
    for (const Collective collective : value_collectives)
        for (const Algorithm &algorithm : algorithms()) {
            if (!algorithm.has(collective)) continue;
            TwinCall call{
                .collective = collective, .algorithm = spec(algorithm), .ranks = ranks, .seed = 77};
            for (const TypeInfo &type : type_table)
                for (const RedOp op : ops)
                    for (const Codec &codec : parsed) {
                        if (!takes_op(collective, op)) continue;
                        if (!check_codec(codec, collective, type.type, op)) continue;
                        call.type = type.type;
                        call.op = op;
                        // The number of cases must not depend on the ranks.
                        const bool rounds_exact =
                            codec.sums_exactly && algorithm.sums_on_the_way() && ranks > 2;
                        call.codec = rounds_exact ? Codec() : codec;
                        for (const uint64_t count : counts) {
                            call.count = count;
                            if (row_of(collective).has_root)
                                call.root = static_cast<uint32_t>(count % ranks);
                            visit(std::as_const(call));
                        }
                    }
        }
}

// The cases of the table that a commit runs on several teams: each case is dealt to one team, and
// of those a pair sample is taken. QTEST_FULL=1 gives every team all cases. `has_forms`: algorithm
// and collective together meet every value of the other columns.
class DealtCases {
public:
    DealtCases(size_t teams, bool has_forms) : teams_(teams) {
        PairSample<7> sample;
        each_case(1, [&](const TwinCall &call) {
            const uint64_t team = splitmix64(all_) % teams_;
            sample.offer(call.count > 4000,
                         {team, has_forms ? form_of(call) : static_cast<uint64_t>(call.collective),
                          PairSample<7>::value(call.algorithm), static_cast<uint64_t>(call.type),
                          static_cast<uint64_t>(call.op), PairSample<7>::value(spec(call.codec)),
                          call.count});
            all_++;
        });
        chosen_ = sample.choose();
    }

    // Calls visit(call) for the cases of the team, which has so many ranks; returns their number.
    template <class Visitor> uint64_t each(size_t team, uint32_t ranks, Visitor visit) const {
        ChosenCases cases = chosen_;
        uint64_t taken = 0;
        each_case(ranks, [&](const TwinCall &call) {
            const bool is_its_own = is_full() || splitmix64(cases.cases) % teams_ == team;
            if (!cases.takes() || !is_its_own) return;
            taken++;
            visit(call);
        });
        return taken;
    }

    uint64_t all() const { return all_; }

private:
    const size_t teams_;
    uint64_t all_ = 0;
    ChosenCases chosen_;
};

inline std::string words_of(const TwinCall &call, bool in_place) {
    char text[256];
    snprintf(text, sizeof text, "%s %s %s %s %s count %llu ranks %u root %u%s",
             name(call.collective), call.algorithm.c_str(), name(call.type), name(call.op),
             spec(call.codec).c_str(), static_cast<unsigned long long>(call.count), call.ranks,
             call.root, in_place ? " in place" : "");
    return text;
}

} // namespace qtest
