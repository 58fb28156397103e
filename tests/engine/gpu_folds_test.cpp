// Tests find_fold() of lib/engine/gpu/gpu_steps: a sum over several sources with one sink becomes
// one launch, and no fold is found if a launch would gain nothing or give other results.
#include "tests/kit/qtest.hpp"

#include "engine/gpu/gpu_lanes.hpp"

#include <vector>

using namespace qccl;

namespace {

constexpr uint64_t count = 320;

// Addresses for the steps; nothing is read or written there.
std::byte memory[16];
std::byte *const sum = &memory[0], *const output = &memory[1], *const payload = &memory[2];
const std::byte *source(size_t i) { return &memory[3 + i]; }

struct Steps {
    Codec codec = *parse_codec("int8");
    PayloadLayout layout = payload_layout(codec, DataType::float32, count);
    TileContext context{.codec = &codec, .layout = &layout, .ranks = 4, .count = count};
    std::vector<TileStep> steps{};

    void use(const char *spec) {
        codec = *parse_codec(spec);
        layout = payload_layout(codec, DataType::float32, count);
    }
    void add(Op::What what, std::byte *dst, const std::byte *src) {
        const auto stride = [](const std::byte *at) { return at == sum ? 0 : sizeof(float); };
        steps.push_back({.what = what,
                         .dst = dst,
                         .src = src,
                         .dst_stride = what == Op::What::encode ? 0 : stride(dst),
                         .src_stride = stride(src),
                         .noise = {}});
    }
    auto find() { return find_fold(context, steps); }
};

Steps decoded_sum(size_t sources) {
    Steps given;
    given.add(Op::What::decode, sum, source(0));
    for (size_t i = 1; i < sources; i++)
        given.add(i % 2 == 0 ? Op::What::reduce : Op::What::decode_add, sum, source(i));
    return given;
}

} // namespace

static void a_sum_that_is_encoded_is_one_launch() {
    Steps given = decoded_sum(4);
    given.add(Op::What::divide, sum, nullptr);
    given.add(Op::What::encode, payload, sum);
    given.add(Op::What::decode, output, payload);
    const auto fold = given.find();
    CHECK(fold.has_value());
    CHECK_EQ(fold->source_count, 4U);
    CHECK(fold->divides);
    CHECK_EQ(fold->steps, 6U);
    CHECK(fold->sink == &given.steps[5]);
}

static void what_reads_the_sum_later_reads_what_was_stored() {
    Steps given = decoded_sum(2);
    given.add(Op::What::copy, output, sum);
    given.add(Op::What::copy, payload, sum);
    const auto fold = given.find();
    CHECK(fold.has_value());
    CHECK(!fold->divides);
    CHECK_EQ(fold->steps, 3U);
    CHECK(given.steps[3].src == output);
    CHECK_EQ(given.steps[3].src_stride, sizeof(float));
}

static void a_sum_that_is_read_after_its_encoding_is_none() {
    Steps given = decoded_sum(2);
    given.add(Op::What::encode, payload, sum);
    given.add(Op::What::copy, output, sum); // differs from what the payload decodes to
    CHECK(!given.find());
}

static void another_sum_in_the_same_tile_is_another() {
    Steps given = decoded_sum(2);
    given.add(Op::What::encode, payload, sum);
    given.add(Op::What::decode, sum, source(2));
    given.add(Op::What::encode, payload, sum);
    CHECK(given.find().has_value());
    CHECK(given.steps[4].src == sum);
}

static void what_no_kernel_does_at_once_is_none() {
    for (const char *spec : {"onebit", "topk", "nvfp4", "minmax:bucket=all"}) {
        Steps given = decoded_sum(2);
        given.use(spec);
        given.add(Op::What::encode, payload, sum);
        CHECK(!given.find());
    }
    // Incomplete buckets carry their values without codes, behind the others.
    Steps given = decoded_sum(2);
    given.use("minmax:bucket=64,skip_incomplete=1");
    given.add(Op::What::copy, output, sum);
    CHECK_EQ(given.find().has_value(), count % 64 == 0);
    given.use("minmax:bucket=256,skip_incomplete=1");
    CHECK(!given.find());
}

// The sum itself is read later, or is the result.
static void a_sum_that_stays_is_one_launch() {
    Steps given;
    given.add(Op::What::decode, output, source(0));
    given.add(Op::What::reduce, output, source(1));
    given.add(Op::What::divide, output, nullptr);
    given.add(Op::What::encode, payload, output);
    const auto fold = given.find();
    CHECK(fold.has_value());
    CHECK(!fold->sink && fold->divides);
    CHECK_EQ(fold->steps, 3U);
    CHECK_EQ(fold->source_count, 2U);
}

static void sums_of_too_many_or_that_nobody_takes_are_none() {
    Steps alone = decoded_sum(3);
    CHECK(!alone.find());
    alone.add(Op::What::copy, output, source(5));
    CHECK(!alone.find());
    Steps copies;
    copies.add(Op::What::copy, output, source(0));
    CHECK(!copies.find());
    Steps many;
    many.add(Op::What::copy, sum, source(0));
    for (size_t i = 0; i < KernelLauncher::most_sources; i++)
        many.add(Op::What::reduce, sum, source(1));
    many.add(Op::What::copy, output, sum);
    CHECK(!many.find());
    many.steps.erase(many.steps.begin() + 1);
    CHECK(many.find().has_value());
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(a_sum_that_is_encoded_is_one_launch),
        QTEST(what_reads_the_sum_later_reads_what_was_stored),
        QTEST(a_sum_that_is_read_after_its_encoding_is_none),
        QTEST(another_sum_in_the_same_tile_is_another),
        QTEST(what_no_kernel_does_at_once_is_none),
        QTEST(a_sum_that_stays_is_one_launch),
        QTEST(sums_of_too_many_or_that_nobody_takes_are_none),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
