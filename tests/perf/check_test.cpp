// Tests perf/run/result_check, the verification of qccl-perf: every mistake in a result is counted,
// and no correct result is reported as wrong.
#include "tests/kit/qtest.hpp"

#include "perf/run/input_data.hpp"
#include "perf/run/launch.hpp"
#include "perf/run/result_check.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>

using namespace qccl;
using namespace qccl::perf;

static constexpr uint64_t seed = 5;

// Returns the result of `operation` that a lossless collective gives to `rank`: computed in rank
// order, in fp64 or int64.
static std::vector<std::byte> right_result(const Operation &operation, const Source &source,
                                           uint32_t rank) {
    const uint64_t count = operation.recv_count(rank);
    std::vector<std::byte> result(count * type_bytes(operation.type));
    ExactResult exact(operation, source);
    if (has_reals(operation.type)) {
        std::vector<double> values(count * reals_of(operation.type)), magnitudes(values.size());
        exact.reals(rank, 0, values.size(), values.data(), magnitudes.data());
        store_reals(real_type(operation.type), values.data(), values.size(), result.data());
    } else {
        std::vector<int64_t> values(count);
        exact.integers(rank, 0, values.size(), values.data());
        store_integers(operation.type, values.data(), values.size(), result.data());
    }
    return result;
}

using Damage = std::function<void(uint32_t rank, std::vector<std::byte> &result)>;

static CheckResult judge(const Operation &operation, const Codec &codec, const Source &source,
                         const Damage &damage) {
    std::mutex mutex;
    std::optional<CheckResult> judged;
    const int status = launch_threads(operation.ranks, [&](RankGroup &rank_group) {
        std::vector<std::byte> result = right_result(operation, source, rank_group.rank());
        damage(rank_group.rank(), result);
        const auto found = check_result(rank_group, operation, codec, source, result.data());
        if (!found) return 1;
        const std::lock_guard lock(mutex);
        judged = *found;
        return 0;
    });
    CHECK_EQ(status, 0);
    return *judged;
}

static const Damage nothing = [](uint32_t, std::vector<std::byte> &) {};

static Operation all_reduce(DataType type, RedOp op, uint64_t count, uint32_t ranks = 3) {
    return {.collective = Collective::all_reduce,
            .type = type,
            .op = op,
            .ranks = ranks,
            .count = count};
}

static void right_results_are_right() {
    const auto source = make_gaussian(seed);
    for (const Collective collective : value_collectives)
        for (const TypeInfo &row : type_table)
            for (const RedOp op : all_ops) {
                if (!takes_op(collective, op) && reduces(collective)) continue;
                if (!check_op(collective, row.type, op)) continue;
                Operation operation = all_reduce(row.type, op, 1001);
                operation.collective = collective;
                operation.root = 2;
                const CheckResult result = judge(operation, Codec{}, *source, nothing);
                CHECK_EQ(result.wrong, 0U);
                CHECK_EQ(result.ranks_agree.has_value(), is_same_everywhere(collective));
                CHECK_EQ(result.nmse.has_value(), has_reals(row.type));
            }
}

static Operation v_form(Collective of, DataType type, Skew skew) {
    Operation operation = all_reduce(type, RedOp::sum, 1001);
    operation.collective = of;
    operation.pattern = Pattern::v_form;
    operation.root = 1;
    operation.parts = PartCounts::create({.collective = of,
                                          .skew = skew,
                                          .seed = seed,
                                          .ranks = operation.ranks,
                                          .root = operation.root,
                                          .count = operation.count});
    return operation;
}

// Each part comes from its own giver, and from the right place there.
static void results_of_v_forms_are_checked() {
    const auto source = make_gaussian(seed);
    for (const VForm &form : v_forms)
        for (const Skew skew : {Skew::linear, Skew::one, Skew::random})
            for (const DataType type : {DataType::float32, DataType::int32, DataType::complex64}) {
                const Operation operation = v_form(form.of, type, skew);
                CHECK_EQ(judge(operation, Codec{}, *source, nothing).wrong, 0U);
                // The last element of each rank that has a result.
                uint64_t results = 0;
                for (uint32_t rank = 0; rank < operation.ranks; rank++)
                    results += operation.has_result(rank) && operation.recv_count(rank) > 0;
                if (is_same_everywhere(form.of)) results = 1;
                const Damage flip = [](uint32_t, std::vector<std::byte> &result) {
                    if (!result.empty()) result[result.size() - 4] ^= std::byte{1};
                };
                CHECK_EQ(judge(operation, Codec{}, *source, flip).wrong, results);
            }
}

// The generated fp32 and fp64 data add up exactly, so a flip of the last bit of one element is
// found.
static void one_wrong_bit_is_found() {
    const auto source = make_gaussian(seed);
    const Damage flip = [](uint32_t, std::vector<std::byte> &result) {
        result[4 * 777] ^= std::byte{1};
    };
    for (const Collective collective : value_collectives)
        for (const DataType type : {DataType::float32, DataType::int32}) {
            Operation operation = all_reduce(type, RedOp::sum, 1001);
            operation.collective = collective;
            // Each rank checks its share of the vector. Where results differ, every rank has a
            // vector of its own, so all three find the flip.
            const CollectiveRow &row = row_of(collective);
            const bool is_own = row.scatters || row.exchanges || is_prefix(collective);
            const uint64_t expected = collective == Collective::exscan ? 2 : is_own ? 3 : 1;
            CHECK_EQ(judge(operation, Codec{}, *source, flip).wrong, expected);
        }
}

static void ranks_that_differ_are_found() {
    const auto source = make_gaussian(seed);
    const Damage flip_on_one = [](uint32_t rank, std::vector<std::byte> &result) {
        if (rank == 1) result[4 * 777] ^= std::byte{1};
    };
    for (const Codec &codec : {Codec{}, *parse_codec("int4")}) {
        const CheckResult result =
            judge(all_reduce(DataType::float32, RedOp::sum, 1001), codec, *source, flip_on_one);
        CHECK(result.ranks_agree == false);
        CHECK(result.wrong > 0);
    }
}

static void a_buffer_that_nobody_wrote_is_wrong() {
    const auto source = make_gaussian(seed);
    const Damage poison = [](uint32_t, std::vector<std::byte> &result) {
        std::memset(result.data(), 0xA5, result.size());
    };
    for (const TypeInfo &row : type_table) {
        const Operation operation =
            all_reduce(row.type, row.kind == TypeKind::pair ? RedOp::min_loc : RedOp::max, 500);
        CHECK(judge(operation, Codec{}, *source, poison).wrong > 100);
    }
}

static void a_compressed_result_may_be_off_by_what_its_codec_loses() {
    const auto source = make_gaussian(seed);
    const auto shift = [](float by) -> Damage {
        return [by](uint32_t, std::vector<std::byte> &result) {
            float value = 0;
            std::memcpy(&value, &result[400], sizeof value);
            value += by;
            std::memcpy(&result[400], &value, sizeof value);
        };
    };
    const Operation operation = all_reduce(DataType::float32, RedOp::sum, 1001);
    const Codec int8 = *parse_codec("int8");
    CHECK_EQ(judge(operation, int8, *source, shift(0.01F)).wrong, 0U);
    CHECK_EQ(judge(operation, int8, *source, shift(10.0F)).wrong, 1U);
    CHECK_EQ(judge(operation, Codec{}, *source, shift(0.01F)).wrong, 1U);
}

static void change(std::vector<std::byte> &result, size_t at) {
    float value = 0;
    std::memcpy(&value, &result.at(at * sizeof value), sizeof value);
    value += 0.001F;
    std::memcpy(&result.at(at * sizeof value), &value, sizeof value);
}

// Of 3 ranks with 1001 values each, the value at 1500 is one of rank 1's. Its codec would change it
// by more.
static void exact_owners_are_checked() {
    const auto source = make_gaussian(seed);
    const Codec exact = *parse_codec("int8:owner=exact");
    const auto damage_on = [](std::initializer_list<uint32_t> ranks, size_t at) -> Damage {
        return [on = std::vector(ranks), at](uint32_t rank, std::vector<std::byte> &result) {
            if (std::ranges::find(on, rank) != on.end()) change(result, at);
        };
    };
    for (const bool gathers : {true, false}) {
        Operation operation = all_reduce(DataType::float32, RedOp::sum, gathers ? 1001 : 3003);
        operation.collective = gathers ? Collective::all_gather : Collective::broadcast;
        operation.root = 1;
        const CheckResult right = judge(operation, exact, *source, nothing);
        CHECK_EQ(right.wrong, 0U);
        CHECK(right.ranks_agree == true && right.nmse == 0.0);
        const CheckResult others = judge(operation, exact, *source, damage_on({0, 2}, 1500));
        CHECK_EQ(others.wrong, 0U);
        CHECK(others.ranks_agree == true && others.nmse > 0.0);
        const CheckResult one = judge(operation, exact, *source, damage_on({2}, 1500));
        CHECK_EQ(one.wrong, 1U);
        CHECK(one.ranks_agree == false);
        const CheckResult owner = judge(operation, exact, *source, damage_on({1}, 1500));
        CHECK_EQ(owner.wrong, 1U);
        CHECK(owner.ranks_agree == true);
    }
    // Two ranks have nothing in common that they could compare.
    Operation pair = all_reduce(DataType::float32, RedOp::sum, 1001, 2);
    pair.collective = Collective::all_gather;
    CHECK_EQ(judge(pair, exact, *source, damage_on({0}, 1500)).wrong, 0U);
    CHECK_EQ(judge(pair, exact, *source, damage_on({1}, 1500)).wrong, 1U);
    const Operation uneven = v_form(Collective::all_gather, DataType::float32, Skew::one);
    CHECK_EQ(judge(uneven, exact, *source, nothing).wrong, 0U);
}

static void the_error_is_measured() {
    const auto source = make_gaussian(seed);
    const Operation operation = all_reduce(DataType::float32, RedOp::sum, 4096);
    const Damage scale = [](uint32_t, std::vector<std::byte> &result) {
        std::vector<float> values(result.size() / sizeof(float));
        std::memcpy(values.data(), result.data(), result.size());
        for (float &value : values) value *= 1.125F;
        std::memcpy(result.data(), values.data(), result.size());
    };
    const CheckResult result = judge(operation, *parse_codec("int2"), *source, scale);
    CHECK(std::fabs(result.nmse.value() - 0.125 * 0.125) < 1e-6);
    CHECK(result.max_abs_err.value() > 0.1);
    CHECK(judge(operation, Codec{}, *source, nothing).nmse == 0.0);
}

// Data with a NaN and an infinity on one rank.
class Holed final : public Source {
public:
    void read(uint32_t rank, DataType type, uint64_t first, size_t count,
              std::byte *dst) const override {
        std::vector<double> values(count, 1.0);
        for (size_t i = 0; i < count; i++) {
            if (rank == 1 && first + i == 10) values[i] = std::numeric_limits<double>::quiet_NaN();
            if (rank == 1 && first + i == 20) values[i] = std::numeric_limits<double>::infinity();
        }
        store_reals(type, values.data(), count, dst);
    }
    uint32_t exact_ranks(DataType) const override { return 256; }
};

static void a_dropped_nan_is_wrong() {
    const Holed source;
    const Operation operation = all_reduce(DataType::float32, RedOp::sum, 100);
    CHECK_EQ(judge(operation, Codec{}, source, nothing).wrong, 0U);
    CHECK(!judge(operation, Codec{}, source, nothing).nmse);
    const Damage drop = [](uint32_t, std::vector<std::byte> &result) {
        const float three = 3;
        std::memcpy(&result[4 * 10], &three, sizeof three);
        std::memcpy(&result[4 * 20], &three, sizeof three);
    };
    CHECK_EQ(judge(operation, Codec{}, source, drop).wrong, 2U);
    CHECK_EQ(judge(operation, *parse_codec("int4"), source, drop).wrong, 2U);
}

// A NaN compares false with every bound and spoils every sum of errors, so the check needs a case
// for it.
static void a_nan_out_of_numbers_is_wrong() {
    const auto source = make_gaussian(seed);
    const Operation operation = all_reduce(DataType::float32, RedOp::sum, 100);
    for (const size_t at : {10U, 50U, 90U}) { // one in each rank's share of the check
        const Damage damage = [at](uint32_t, std::vector<std::byte> &result) {
            const float nan = std::numeric_limits<float>::quiet_NaN();
            std::memcpy(&result[4 * at], &nan, sizeof nan);
        };
        for (const char *codec : {"none", "bf16", "int8", "minmax"})
            CHECK_EQ(judge(operation, *parse_codec(codec), *source, damage).wrong, 1U);
    }
}

static void every_range_of_made_data_is_the_same_data() {
    const auto source = make_gaussian(seed);
    for (const TypeInfo &row : type_table) {
        const size_t bytes = row.bytes;
        std::vector<std::byte> whole(3000 * bytes), part(3000 * bytes);
        source->read(1, row.type, 0, 3000, whole.data());
        for (const uint64_t first : {1U, 2U, 1023U, 1024U, 2047U}) {
            source->read(1, row.type, first, 900, part.data());
            CHECK(std::memcmp(part.data(), whole.data() + first * bytes, 900 * bytes) == 0);
        }
        source->read(2, row.type, 0, 3000, part.data());
        CHECK(std::memcmp(part.data(), whole.data(), 3000 * bytes) != 0);
    }
}

static void made_data_are_gaussian() {
    const auto source = make_gaussian(seed);
    std::vector<double> values(100000);
    source->read(0, DataType::float64, 0, values.size(),
                 reinterpret_cast<std::byte *>(values.data()));
    double sum = 0, squares = 0, fourth = 0;
    for (const double x : values) {
        sum += x;
        squares += x * x;
        fourth += x * x * x * x;
    }
    const double n = static_cast<double>(values.size());
    CHECK(std::fabs(sum / n) < 0.02);
    CHECK(std::fabs(squares / n - 1) < 0.02);
    CHECK(std::fabs(fourth / n - 3) < 0.15);
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(right_results_are_right),
        QTEST(results_of_v_forms_are_checked),
        QTEST(one_wrong_bit_is_found),
        QTEST(ranks_that_differ_are_found),
        QTEST(a_buffer_that_nobody_wrote_is_wrong),
        QTEST(a_compressed_result_may_be_off_by_what_its_codec_loses),
        QTEST(exact_owners_are_checked),
        QTEST(the_error_is_measured),
        QTEST(a_dropped_nan_is_wrong),
        QTEST(a_nan_out_of_numbers_is_wrong),
        QTEST(every_range_of_made_data_is_the_same_data),
        QTEST(made_data_are_gaussian),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
