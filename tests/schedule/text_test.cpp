// Tests lib/schedule/schedule_text: a printed schedule reads back the same, and malformed text is
// refused with its line.
#include "tests/kit/qtest.hpp"

#include "tests/kit/forms.hpp"

#include "schedule/lower.hpp"
#include "schedule/schedule.hpp"

#include <random>

using namespace qccl;

static void every_schedule_reads_back() {
    for (const Algorithm &a : algorithms())
        for (const Collective collective : collectives_of(a))
            for (const uint32_t P : {1U, 2U, 5U})
                for (const ScheduleForm form : forms) {
                    std::vector<Section> sections;
                    std::string text;
                    for (uint32_t rank = 0; rank < P; rank++) {
                        const Team team{.size = P, .rank = rank, .root = P - 1};
                        sections.push_back({team, make(form, a, collective, team)});
                        if (form == ScheduleForm::joined) lower(sections.back().schedule);
                        text += print(sections.back());
                    }
                    const auto read = parse(text);
                    CHECK_OK(read);
                    CHECK(*read == sections);
                }
}

static void the_form_is_pinned() {
    Section section{{.size = 3, .rank = 1},
                    make(ScheduleForm::joined, algorithm_of("direct"), Collective::all_reduce,
                         {.size = 3, .rank = 1})};
    lower(section.schedule);
    CHECK_EQ(print(section), "schedule rank 1 of 3 root 0 chunks 3 outbox 3 wires 7 placed\n"
                             "     0: encode wire(0) <- input(2)\n"
                             "     1: send wire(0) -> 2 chunk 2 releases\n"
                             "     2: encode wire(1) <- input(0) #1\n"
                             "     3: send wire(1) -> 0 chunk 0 releases\n"
                             "     4: recv wire(3) <- 0 chunk 1\n"
                             "     5: recv wire(4) <- 2 chunk 1\n"
                             "     6: decode sum(1) <- wire(3) joins releases\n"
                             "     7: reduce sum(1) += input(1) joins\n"
                             "     8: decode_add sum(1) += wire(4) joins releases\n"
                             "     9: encode wire(2) <- sum(1) #2 finishes joins\n"
                             "    10: decode output(1) <- wire(2)\n"
                             "    11: send wire(2) -> 2 chunk 1 #1\n"
                             "    12: send wire(2) -> 0 chunk 1 #1 releases\n"
                             "    13: recv wire(5) <- 0 chunk 0 #1\n"
                             "    14: decode output(0) <- wire(5) releases\n"
                             "    15: recv wire(6) <- 2 chunk 2 #1\n"
                             "    16: decode output(2) <- wire(6) releases\n");
}

static void space_numbers_and_comments_are_free() {
    const auto read =
        parse("// by hand\n\n  schedule rank 0 of 1 root 0 chunks 1 outbox 0 wires 0\r\n"
              "\treduce sum ( 0 )+=input(0)\n1:copy output(0)<-sum(0) finishes");
    CHECK_OK(read);
    CHECK_EQ(read->size(), 1U);
    Schedule expected{.chunks = 1};
    expected.reduce(sum(0), input(0));
    expected.finish(output(0), sum(0));
    CHECK((*read)[0].schedule == expected);
    CHECK_OK(parse(""));
}

static void hostile_text_is_refused_with_its_line() {
    const auto refusal = [](const std::string &text) -> std::string {
        const auto read = parse(text);
        CHECK(!read);
        return read.error().text;
    };
    const std::string header = "schedule rank 0 of 2 root 0 chunks 1 outbox 1 wires 2\n";
    const std::pair<std::string, const char *> cases[] = {
        {"copy output(0) <- input(0)", "line 1: expected schedule"},
        {"schedule rank 2 of 2 root 0 chunks 1 outbox 0 wires 0", "line 1: rank and root"},
        {"schedule rank 0 of 0 root 0 chunks 1 outbox 0 wires 0", "line 1: rank and root"},
        {"schedule rank 0 of 2 root 2 chunks 1 outbox 0 wires 0", "line 1: rank and root"},
        {"schedule rank 0 of 2 root 0 chunks", "line 1: expected a number"},
        {"schedule rank 0 of 2 root 0 chunks 1 outbox 0 wires 99999999999",
         "line 1: number too large"},
        {"schedule rank 0 of 2 root 0 chunks 1 outbox 0 wires 0 maybe", "line 1: nothing more"},
        {"schedule rank 0 of 2 root 0 chunks 400000000 outbox 0 wires 0",
         "line 1: there are more chunks"},
        {"schedule rank 0 of 2 root 0 chunks 0 outbox 400000000 wires 0", "line 1: the outbox"},
        {"schedule rank 0 of 2 root 0 chunks 0 outbox 0 wires 400000000",
         "line 1: there are more wires"},
        {header + "jump", "line 2: expected a step"},
        {header + "copying output(0) <- input(0)", "line 2: expected a step"},
        {header + "copy output(0)", "line 2: expected <-"},
        {header + "copy output(0) += input(0)", "line 2: expected <-"},
        {header + "copy output(0) <- thing(0)", "line 2: expected input, output"},
        {header + "copy output(0) <- input(0", "line 2: expected )"},
        {header + "copy output(-1) <- input(0)", "line 2: expected a number"},
        {header + "copy output(536870912) <- input(0)", "line 2: number too large"},
        {header + "copy output(0) <- input(0..1)", "line 2: only reduce"},
        {header + "copy output(0..1) <- input(0)", "line 2: only what is added"},
        {header + "reduce sum(0) += input(1..0)", "line 2: a range that ends"},
        {header + "reduce sum(0) += input(0..70000)", "line 2: a range that ends"},
        {header + "send wire(0) -> 1", "line 2: expected the chunk"},
        {header + "send wire(0) <- 1 chunk 0", "line 2: expected ->"},
        {header + "copy output(0) <- input(0) later", "line 2: nothing more"},
        {header + "copy output(0) <- input(0) joins finishes", "line 2: nothing more"},
        {header + "7: copy output(0) <- input(0)", "line 2: the step has another number: 0"},
        {header + "\n\ncopy output(0) <- input(0)\ncopy", "line 5: expected input, output"},
        {std::string("\0schedule", 9), "line 1: expected schedule"},
    };
    for (const auto &[text, start] : cases) {
        const std::string said = refusal(text);
        if (!said.starts_with(start))
            throw qtest::Failure{"'" + said + "' does not start with '" + start + "'"};
    }
}

// Damaged text never crashes the parser. If it is accepted, its print reads back and prints the
// same again.
static void damaged_text_is_refused_or_means_something() {
    const Team team{.size = 4, .rank = 2};
    const std::string text = print(Section{
        team, make(ScheduleForm::joined, algorithm_of("ring"), Collective::all_reduce, team)});
    std::mt19937 random(1);
    uint32_t accepted = 0;
    for (uint32_t i = 0; i < 20000; i++) {
        std::string damaged = text;
        for (uint32_t k = 0; k <= i % 3; k++)
            damaged[random() % damaged.size()] = static_cast<char>(random() % 128);
        const auto read = parse(damaged);
        if (!read) continue;
        accepted++;
        std::string again;
        for (const Section &section : *read) again += print(section);
        const auto same = parse(again);
        CHECK_OK(same);
        CHECK(*same == *read);
    }
    CHECK(accepted > 0);
    CHECK(accepted < 20000);
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(every_schedule_reads_back),
        QTEST(the_form_is_pinned),
        QTEST(space_numbers_and_comments_are_free),
        QTEST(hostile_text_is_refused_with_its_line),
        QTEST(damaged_text_is_refused_or_means_something),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
