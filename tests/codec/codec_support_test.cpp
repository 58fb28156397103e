// Tests what codecs support (codec.hpp): grids of cuts, and which collectives, types and operations
// each codec serves.
#include "spec_kit.hpp"

using namespace qccl;
using namespace qtest;

// Checks that the spec is refused with a sentence that contains `hint`.
static void grids_hold_whole_buckets_and_lines() {
    CHECK_EQ(grain(parsed("none")), 64U);
    CHECK_EQ(grain(parsed("fp16")), 64U);
    CHECK_EQ(grain(parsed("int4")), 64U);
    CHECK_EQ(grain(parsed("int4:block=7")), 448U);
    CHECK_EQ(grain(parsed("int4:block=96")), 192U);
    CHECK_EQ(grain(parsed("minmax")), 512U);
    CHECK_EQ(grain(parsed("int4:rotate=32")), 64U);
    CHECK_EQ(grain(parsed("int4:rotate=256")), 256U);
    CHECK_EQ(grain(parsed("minmax:rotate=64")), 512U);
    CHECK_EQ(grain(parsed("mxfp4")), 64U);
    CHECK_EQ(grain(parsed("fp8e4m3")), 64U);
    CHECK_EQ(grain(parsed("fp8e4m3:block=32")), 64U);
    CHECK_EQ(grain(parsed("fp8e5m2:block=256")), 256U);
    CHECK_EQ(grain(parsed("topk")), 64U);
    CHECK(parsed("topk").has_whole_buckets());
    CHECK(parsed("dummy").has_whole_buckets());
    CHECK_EQ(grain(parsed("nvfp4")), 1024U);
    CHECK_EQ(grain(parsed("nvfp4:bucket=all")), 64U);
    CHECK_EQ(grain(parsed("nvfp4:bucket=96")), 192U);
    CHECK_EQ(grain(parsed("minmax:bucket=all")), 64U);
    CHECK_EQ(grain(parsed("minmax:bucket=1073741823")), size_t{1073741823} * 64);
}

static void combinations_are_checked() {
    const Codec none, cast = parsed("bf16"), lossy = parsed("int4"), bucketed = parsed("minmax");
    for (const TypeInfo &row : type_table)
        for (const RedOp op : all_ops)
            for (const Collective collective : value_collectives) {
                const bool adds = op == RedOp::sum || op == RedOp::avg || !reduces(collective);
                const bool is_taken = takes(row.type, op) || !reduces(collective);
                CHECK_EQ(check_op(collective, row.type, op).is_ok(), is_taken);
                CHECK_EQ(check_codec(none, collective, row.type, op).is_ok(), is_taken);
                CHECK_EQ(check_codec(cast, collective, row.type, op).is_ok(),
                         row.is_float && is_taken);
                CHECK_EQ(check_codec(lossy, collective, row.type, op).is_ok(),
                         row.is_float && adds);
                CHECK_EQ(check_codec(bucketed, collective, row.type, op).is_ok(),
                         row.is_float && adds);
            }
    for (const char *text :
         {"lossless", "int8:entropy=1", "bf16:entropy=1", "bound", "bound:abs=1"}) {
        const Codec packing = parsed(text);
        const auto is_possible = [&](DataType type, RedOp op) {
            return check_codec(packing, Collective::all_reduce, type, op).is_ok();
        };
        CHECK(is_possible(DataType::float32, RedOp::sum));
        CHECK_EQ(is_possible(DataType::float32, RedOp::max), packing.is_plain());
        CHECK(!is_possible(DataType::int32, RedOp::sum));
        CHECK(check_type(packing, DataType::bfloat16).is_ok());
        CHECK(!check_type(packing, DataType::int32));
    }
    const Done bits = check_op(Collective::scan, DataType::float32, RedOp::bit_and);
    CHECK(bits.error().code == Code::invalid_argument);
    CHECK_EQ(std::string(bits.error().text),
             "op is bitand, which float values do not have; possible are sum, prod, max, min, avg");
    const Done refused = check_codec(lossy, Collective::all_reduce, DataType::float32, RedOp::max);
    CHECK(refused.error().code == Code::invalid_argument);
    CHECK(strstr(refused.error().text, "int4") != nullptr &&
          strstr(refused.error().text, "max") != nullptr);
    const Done integers = check_codec(cast, Collective::all_reduce, DataType::int32, RedOp::sum);
    CHECK(strstr(integers.error().text, "int32") != nullptr);
}

static void owners_are_of_calls_that_have_them() {
    const Codec exact = parsed("int8:owner=exact");
    for (const Collective collective : value_collectives) {
        const Done done = check_codec(exact, collective, DataType::float32, RedOp::sum);
        CHECK_EQ(done.is_ok(),
                 collective == Collective::all_gather || collective == Collective::broadcast);
        if (done) continue;
        CHECK(done.error().code == Code::invalid_argument);
        CHECK_EQ(std::string(done.error().text),
                 "codec int8:owner=exact: owner=exact is of all_gather and broadcast, where all "
                 "ranks get the values that one has; in " +
                     std::string(name(collective)) + " it means nothing");
    }
    CHECK_EQ(std::string(check_for_reductions(exact).error().text),
             "codec int8:owner=exact: owner=exact is of all_gather and broadcast, and a codec that "
             "calls do not name themselves reaches reductions alone");
    CHECK_OK(check_for_reductions(parsed("int8:owner=decoded")));
    CHECK(parsed("int8:min=3,guard=nmse:0.1,owner=exact").without_use() == parsed("int8"));
}

static void exact_sums_are_lossless_sums_of_floats() {
    const Codec exact = *parse_codec("exact");
    CHECK(exact.is_lossless() && exact.sums_exactly && !exact.keeps_type());
    CHECK(Codec().keeps_type() && exact != Codec() && exact.without_use() == Codec());
    CHECK_EQ(spec(exact), "exact");
    check_refused("exact:min=0", "exact takes no keys");
    CHECK_OK(check_codec(exact, Collective::all_reduce, DataType::bfloat16, RedOp::avg));
    CHECK_OK(check_codec(exact, Collective::scan, DataType::float64, RedOp::sum));
    const auto refused = [&](Collective collective, DataType type, RedOp op, const char *what) {
        const Done done = check_codec(exact, collective, type, op);
        CHECK(!done && std::string_view(done.error().text).find(what) != std::string::npos);
    };
    refused(Collective::all_reduce, DataType::float32, RedOp::max, "not with max of float");
    refused(Collective::all_reduce, DataType::int32, RedOp::sum, "not with sum of int32");
    refused(Collective::broadcast, DataType::float32, RedOp::sum, "not with broadcast of float");
}

static void shared_scales_are_of_sums_of_floats() {
    const Codec shared = parsed("shared:bits=5,block=64");
    CHECK(shared.shares_scales() && shared.loses() && !shared.keeps_type() &&
          !shared.is_lossless());
    CHECK(is_possible(shared) && !parsed("bound").shares_scales());
    // What carries the integers says nothing of the scales, and loses none of them.
    CHECK(shared.without_use() == parsed("bound:abs=0.502"));
    Codec plain;
    plain.shared_bits = 5;
    plain.shared_block = 64;
    CHECK(plain.loses() && !plain.keeps_type());
    CHECK_EQ(spec(plain), "shared:bits=5,block=64");
    for (const char *const spec : {"shared:bits=1", "shared:bits=9", "shared:bits=x"})
        check_refused(spec, "possible is 2 to 8");
    check_refused("shared:block=0", "possible is 1 to 1073741824");
    for (const char *text :
         {"shared:abs=1", "shared:rel=0.1", "shared:entropy=1", "shared:owner=exact",
          "shared:guard=nmse:0.1", "shared:bucket=32", "shared:round=nearest"})
        check_refused(text, "possible are bits, block, min");
    for (const RedOp op : {RedOp::sum, RedOp::avg})
        for (const Collective collective :
             {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter})
            CHECK_OK(check_codec(shared, collective, DataType::bfloat16, op));
    const auto refused = [&](Collective collective, DataType type, RedOp op, const char *what) {
        const Done done = check_codec(shared, collective, type, op);
        CHECK(!done && std::string_view(done.error().text).find(what) != std::string::npos);
    };
    refused(Collective::all_reduce, DataType::float32, RedOp::max, "not with max in all_reduce");
    refused(Collective::all_reduce, DataType::float32, RedOp::pre_mul_sum, "not with");
    refused(Collective::scan, DataType::float32, RedOp::sum, "not with sum in scan");
    refused(Collective::all_gather, DataType::float32, RedOp::sum, "in all_gather");
    refused(Collective::all_reduce, DataType::int32, RedOp::sum, "only floating point is encoded");
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(grids_hold_whole_buckets_and_lines),  QTEST(combinations_are_checked),
        QTEST(owners_are_of_calls_that_have_them),  QTEST(exact_sums_are_lossless_sums_of_floats),
        QTEST(shared_scales_are_of_sums_of_floats),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
