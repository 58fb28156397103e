// api/codec_policy: promises 1 and 2 of the numerical contract.
#include "qtest.hpp"

#include "api/codec_policy.hpp"

using namespace qccl;

static Codec codec(const char *spec) {
    const auto parsed = parse_codec(spec);
    CHECK_OK(parsed);
    return *parsed;
}

static constexpr CallShape float_sum{Collective::all_reduce, DataType::float32, RedOp::sum};

static CallShape shape(Collective collective, DataType type, RedOp op) {
    return {collective, type, op};
}

static std::string chosen(const CodecPolicy &policy, const Codec *of_call, const CallShape &call) {
    const auto choice = policy.choose(of_call, call);
    CHECK_OK(choice);
    return spec(choice->codec);
}

static void lossless_by_default() { CHECK_EQ(chosen({}, nullptr, float_sum), "none"); }

static void the_call_precedes_the_communicator_precedes_the_environment() {
    const Codec int8 = codec("int8"), none;
    CHECK_EQ(chosen({codec("int4"), codec("int2")}, &int8, float_sum), "int8");
    CHECK_EQ(chosen({codec("int4"), codec("int2")}, nullptr, float_sum), "int4");
    CHECK_EQ(chosen({{}, codec("int2")}, nullptr, float_sum), "int2");
    // An explicit none cannot be made lossy from outside.
    CHECK_EQ(chosen({codec("int4"), codec("int2")}, &none, float_sum), "none");
    CHECK_EQ(chosen({none, codec("int2")}, nullptr, float_sum), "none");
}

static void only_a_call_reaches_what_does_not_reduce() {
    const Codec int8 = codec("int8");
    for (const auto collective : {Collective::all_gather, Collective::broadcast}) {
        const CallShape call = shape(collective, DataType::float32, RedOp::sum);
        CHECK_EQ(chosen({int8, int8}, nullptr, call), "none");
        CHECK_EQ(chosen({}, &int8, call), "int8");
    }
    const Codec budget = codec("auto:nmse=0.1");
    CHECK_EQ(chosen({{}, budget}, nullptr, float_sum), "auto:nmse=0.1");
    const CallShape scatter = shape(Collective::reduce_scatter, DataType::float16, RedOp::avg);
    CHECK_EQ(chosen({{}, int8}, nullptr, scatter), "int8");
}

static void the_environment_reaches_sum_and_avg_of_floating_point() {
    const CodecPolicy environment{{}, codec("bf16")}, communicator{codec("bf16"), {}};
    const CallShape max = shape(Collective::all_reduce, DataType::float32, RedOp::max);
    const auto passed_over = environment.choose(nullptr, max);
    CHECK_OK(passed_over);
    CHECK(passed_over->codec.is_lossless() && passed_over->passed_over);
    CHECK_EQ(std::string(passed_over->passed_over->text),
             "codec bf16 of QCCL_CODEC: reaches sum and avg of floating point, not max of float");
    CHECK_EQ(chosen(communicator, nullptr, max), "bf16"); // a cast can, and somebody meant it
}

static void an_impossible_codec_is_refused_only_where_the_call_names_it() {
    const CallShape max = shape(Collective::all_reduce, DataType::float32, RedOp::max);
    const CallShape integers = shape(Collective::all_reduce, DataType::int32, RedOp::sum);
    for (const Codec &impossible : {codec("int4"), codec("auto:nmse=0.1")})
        for (const CallShape &call : {max, integers}) {
            const auto refused = CodecPolicy{}.choose(&impossible, call);
            CHECK(!refused && refused.error().code == Code::invalid_argument);
            const auto passed_over = CodecPolicy{impossible, {}}.choose(nullptr, call);
            CHECK_OK(passed_over);
            CHECK(passed_over->codec.is_lossless() && passed_over->passed_over);
        }
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(lossless_by_default),
        QTEST(the_call_precedes_the_communicator_precedes_the_environment),
        QTEST(only_a_call_reaches_what_does_not_reduce),
        QTEST(the_environment_reaches_sum_and_avg_of_floating_point),
        QTEST(an_impossible_codec_is_refused_only_where_the_call_names_it),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
