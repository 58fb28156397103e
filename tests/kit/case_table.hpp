// The table of cases for every test that runs collectives: all supported combinations of
// collective, algorithm, type, operation, codec and count.
#pragma once

#include "slow_twin.hpp"

#include "coll/algorithm.hpp"

#include <cstdio>
#include <string>

namespace qtest {

using namespace qccl;

inline constexpr auto &ops = all_ops;
inline constexpr const char *codecs[] = {"none",
                                         "fp16",
                                         "bf16",
                                         "fp8e4m3",
                                         "fp8e5m2",
                                         "int8",
                                         "int4",
                                         "int3:block=100",
                                         "int2:round=stochastic",
                                         "int6:block=1",
                                         "mxfp6e2m3",
                                         "mxfp4:scale=ocp,round=stochastic",
                                         "nvfp4:bucket=64,scale=ceil",
                                         "nvfp4:bucket=all",
                                         "onebit:bucket=100",
                                         "terngrad:bucket=100,clip=1.5",
                                         "topk:ratio=0.01",
                                         "minmax:bits=4,bucket=64",
                                         "minmax:bits=8,bucket=33,round=stochastic",
                                         "minmax:bits=2,bucket=all",
                                         "minmax:bits=5,bucket=100,skip_incomplete=1"};
inline constexpr uint64_t counts[] = {0, 1, 31, 32, 33, 1000, 4097, 20011};
// Calls visit(call) for every combination that the library accepts.
template <class Visitor> void each_case(uint32_t ranks, Visitor visit) {
    for (const Collective collective : value_collectives)
        for (const Algorithm &algorithm : algorithms())
            for (const TypeInfo &type : type_table)
                for (const RedOp op : ops)
                    for (const char *codec : codecs)
                        for (const uint64_t count : counts) {
                            if (!takes_op(collective, op)) continue;
                            if (!algorithm.has(collective)) continue;
                            TwinCall call{.collective = collective,
                                          .algorithm = spec(algorithm),
                                          .type = type.type,
                                          .op = op,
                                          .codec = *parse_codec(codec),
                                          .count = count,
                                          .ranks = ranks,
                                          .seed = 77};
                            if (row_of(collective).has_root)
                                call.root = static_cast<uint32_t>(count % ranks);
                            if (check_codec(call.codec, collective, call.type, op)) visit(call);
                        }
}

inline std::string words_of(const TwinCall &call, bool in_place) {
    char text[256];
    snprintf(text, sizeof text, "%s %s %s %s %s count %llu ranks %u root %u%s",
             name(call.collective), call.algorithm.c_str(), name(call.type), name(call.op),
             spec(call.codec).c_str(), static_cast<unsigned long long>(call.count), call.ranks,
             call.root, in_place ? " in place" : "");
    return text;
}

} // namespace qtest
