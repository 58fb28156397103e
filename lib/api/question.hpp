// A call in words, as qcclExplain takes it: "all_reduce bytes=64M type=float op=sum codec=int4
// format=json".
#pragma once

#include "base/result.hpp"
#include "base/types.hpp"
#include "codec/codec.hpp"

#include <optional>
#include <string>
#include <string_view>

namespace qccl {

struct Question {
    Collective collective = Collective::all_reduce;
    DataType type = DataType::float32;
    RedOp op = RedOp::sum;
    uint32_t root = 0;
    uint64_t count = 0; // as the C API means it
    std::optional<Codec> codec;
    std::string algorithm; // empty: none is named
    bool is_json = false;  // what the answer is written in: JSON, or text
};

// Among `ranks`; `bytes` are those of the whole vector. An error lists what is possible.
Result<Question> parse_question(std::string_view text, uint32_t ranks);

} // namespace qccl
