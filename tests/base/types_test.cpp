// Tests base/types: every number, name and alias leads back to its type, and others are refused.
#include "tests/kit/qtest.hpp"

#include "base/c_numbers.hpp"
#include "base/types.hpp"

#include <string>
#include <string_view>
#include <type_traits>

using namespace qccl;

static void names_lead_back() {
    for (const TypeInfo &row : type_table) {
        CHECK(parse_type(row.name) == row.type);
        CHECK(to_type(static_cast<int32_t>(row.type)) == row.type);
        CHECK_EQ(info(row.type).name, row.name);
        for (const std::string_view alias : row.aliases)
            CHECK(alias.empty() || parse_type(alias) == row.type);
        CHECK_EQ(row.is_float, row.format != FloatFormat());
        CHECK(accumulator_of(row.accumulator) == row.accumulator);
        CHECK(!row.is_float || row.kind == TypeKind::number);
    }
    CHECK(parse_type("fp32") == DataType::float32);
    CHECK(!parse_type("float128"));
    CHECK(!parse_type(""));
}

static void numbers_out_of_range_are_refused() {
    CHECK(!to_type(-1));
    CHECK(!to_type(22));
    CHECK(!to_op(13));
    CHECK(!to_op(-1));
    CHECK(to_op(4) == RedOp::avg);
}

// By kind of type: integer, float, complex, bool, pair.
static void types_take_the_operations_of_mpi() {
    const auto taken = [](RedOp op) {
        std::string kinds;
        for (const DataType type : {DataType::uint16, DataType::float16, DataType::complex64,
                                    DataType::boolean, DataType::short_int})
            kinds += takes(type, op) ? '1' : '0';
        return kinds;
    };
    for (const RedOp op : {RedOp::sum, RedOp::prod, RedOp::avg}) CHECK_EQ(taken(op), "11100");
    for (const RedOp op : {RedOp::max, RedOp::min}) CHECK_EQ(taken(op), "11010");
    for (const RedOp op : {RedOp::bit_and, RedOp::bit_or, RedOp::bit_xor, RedOp::logical_and,
                           RedOp::logical_or, RedOp::logical_xor})
        CHECK_EQ(taken(op), "10010");
    for (const RedOp op : {RedOp::min_loc, RedOp::max_loc}) CHECK_EQ(taken(op), "00001");
}

static void operations_have_names() {
    for (const RedOp op : all_ops) CHECK(parse_op(name(op)) == op);
    CHECK(to_op(12) == RedOp::max_loc && all_ops.back() == RedOp::max_loc);
    CHECK(!parse_op("") && !parse_op("maxi"));
}

// Those that NCCL has, too, have NCCL's numbers; between these and 64 there are none.
static void numbers_of_the_c_header_come_back() {
    for (const TypeInfo &row : type_table) CHECK(type_from_c(number_in_c(row.type)) == row.type);
    for (const RedOp op : all_ops) CHECK(op_from_c(number_in_c(op)) == op);
    CHECK_EQ(number_in_c(DataType::float8e5m2), 11);
    CHECK_EQ(number_in_c(DataType::int16), 64);
    CHECK_EQ(number_in_c(DataType::short_int), 73);
    CHECK_EQ(number_in_c(RedOp::avg), 4);
    CHECK_EQ(number_in_c(RedOp::max_loc), 71);
    for (const int32_t none : {INT32_MIN, -1, 12, 63, 74, INT32_MAX}) CHECK(!type_from_c(none));
    for (const int32_t none : {INT32_MIN, -1, 5, 63, 72, INT32_MAX}) CHECK(!op_from_c(none));
}

static void collectives_have_names() {
    CHECK(parse_collective("allreduce") == Collective::all_reduce);
    CHECK(parse_collective("broadcast") == Collective::broadcast);
    CHECK(!parse_collective("all_to_none"));
    CHECK(!parse_collective(""));
    CHECK(!parse_collective("comm_split")); // a call without algorithms
    for (const CollectiveRow &row : collective_table) {
        CHECK_EQ(name(row.collective), row.name);
        if (row.is_scheduled) CHECK(parse_collective(row.name) == row.collective);
    }
}

static void rows_of_collectives_are_consistent() {
    for (const CollectiveRow &row : collective_table) {
        CHECK(row.is_scheduled || row.v_form_of || !row.has_values);
        if (row.v_form_of) CHECK(!row.is_scheduled && has_part_per_rank(row.collective));
        CHECK(row.has_values || (!row.reduces && !row.scatters && !row.gathers && !row.has_root));
        CHECK(!row.has_one_source || row.has_root);
        CHECK(!row.has_one_result || row.has_root);
        CHECK(row.reduces || row.covers == Covers::all_ranks);
        CHECK(!row.moves_on || row.has_one_source);
        CHECK(!row.exchanges || (!row.scatters && !row.gathers && !row.has_root));
        CHECK(!row.has_one_source || !row.has_one_result);
        CHECK(!row.needs_all_ranks || (!row.has_root && row.covers == Covers::all_ranks));
    }
    CHECK_EQ(value_collectives.size(), 11U);
    CHECK_EQ(std::string_view(collective_names.back()), "send");
    CHECK_EQ(std::string_view(value_collective_names.back()), "send");
}

static void prefixes_cover_the_ranks_before() {
    CHECK_EQ(covered_ranks(Collective::all_reduce, 1, 4), 4U);
    CHECK_EQ(covered_ranks(Collective::scan, 1, 4), 2U);
    CHECK_EQ(covered_ranks(Collective::exscan, 1, 4), 1U);
    CHECK(takes_op(Collective::scan, RedOp::max) && !takes_op(Collective::scan, RedOp::avg));
    CHECK(takes_op(Collective::reduce, RedOp::avg));
    CHECK(takes_op(Collective::gather, RedOp::sum) && !takes_op(Collective::gather, RedOp::max));
}

static void a_part_per_rank_makes_the_vector() {
    for (const Collective collective :
         {Collective::reduce_scatter, Collective::all_gather, Collective::gather,
          Collective::scatter, Collective::all_to_all}) {
        CHECK(has_part_per_rank(collective));
        CHECK_EQ(vector_count(collective, 100, 3), 300U);
    }
    for (const Collective collective :
         {Collective::all_reduce, Collective::broadcast, Collective::barrier, Collective::reduce}) {
        CHECK(!has_part_per_rank(collective));
        CHECK_EQ(vector_count(collective, 100, 3), 100U);
    }
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(names_lead_back),
        QTEST(numbers_out_of_range_are_refused),
        QTEST(types_take_the_operations_of_mpi),
        QTEST(operations_have_names),
        QTEST(numbers_of_the_c_header_come_back),
        QTEST(collectives_have_names),
        QTEST(rows_of_collectives_are_consistent),
        QTEST(prefixes_cover_the_ranks_before),
        QTEST(a_part_per_rank_makes_the_vector),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
