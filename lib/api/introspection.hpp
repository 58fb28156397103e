// A call in words, as qcclExplain takes it: "all_reduce bytes=64M type=float op=sum codec=int4
// format=json". Used by qcclExplain. Pure; any thread may call it.
#pragma once

#include "base/result.hpp"
#include "base/types.hpp"
#include "codec/codec.hpp"
#include "plan/sampled_error.hpp"

#include <optional>
#include <string>
#include <string_view>

namespace qccl {

struct ExplainQuery {
    Collective collective = Collective::all_reduce;
    DataType type = DataType::float32;
    RedOp op = RedOp::sum;
    uint32_t root = 0;
    uint64_t count = 0;               // as the C function counts; of a v-form that of a mean part
    std::optional<Collective> v_form; // of the collective, if the call is one
    std::optional<Codec> codec;
    std::string algorithm;               // empty: the text names none
    bool is_json = false;                // the answer is JSON, otherwise text
    std::optional<SumStatistics> sample; // what the caller knows about the values
};

// `ranks` is the communicator's size; `bytes=` means the bytes of the whole vector. An error
// (invalid_argument) lists what is possible.
Result<ExplainQuery> parse_explain_query(std::string_view text, uint32_t ranks);

} // namespace qccl
