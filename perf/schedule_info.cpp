#include "perf/schedule_info.hpp"

#include "base/choice.hpp"
#include "base/settings.hpp"
#include "coll/algorithm.hpp"
#include "engine/program.hpp"
#include "plan/explain.hpp"
#include "schedule/place_codec.hpp"
#include "schedule/text.hpp"
#include "schedule/verify.hpp"

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>

#include <unistd.h>

namespace qccl::perf {

// A job has no more, see bootstrap/; and a typing error should not cost all memory.
static constexpr uint32_t most_ranks = 65536;

static Result<const Algorithm *> algorithm_called(const std::string &name) {
    if (const Algorithm *const found = find_algorithm(name)) return found;
    return no_choice("--algo", name, names_of(algorithms()));
}

static Result<Codec> codec_called(const ScheduleQuestion &question) {
    return question.codec.empty() ? Codec{} : parse_codec(question.codec);
}

static Result<Schedule> schedule_of(const ScheduleQuestion &question, const Algorithm &algorithm,
                                    uint32_t rank) {
    const Team team{.size = question.ranks, .rank = rank, .root = question.root};
    QCCL_TRY(const Schedule author, emit(algorithm, question.collective, team));
    if (question.codec.empty()) return author;
    return place_codec(author);
}

static Done check_team(const ScheduleQuestion &question) {
    if (question.ranks == 0 || question.ranks > most_ranks)
        return Error::make(Code::invalid_argument, "--ranks has to be from 1 to %u", most_ranks);
    for (const auto &[name, rank] :
         {std::pair("--rank", question.rank), std::pair("--root", question.root)})
        if (rank >= question.ranks)
            return Error::make(Code::invalid_argument, "%s %u is none of the %u ranks", name, rank,
                               question.ranks);
    return {};
}

// The planner's tables of a communicator with these settings.
static Result<Tables> tables_here() {
    QCCL_TRY(const Settings settings, read_settings(environ));
    Cut cut;
    cut.outbox_bytes = settings.arena_bytes.value_or(cut.outbox_bytes);
    cut.segment_bytes = settings.segment_bytes.value_or(cut.segment_bytes);
    cut.lanes =
        static_cast<uint32_t>(std::min<uint64_t>(settings.lanes.value_or(cut.lanes), UINT32_MAX));
    Tables tables;
    tables.limits = limits_of(cut);
    tables.whole_up_to_bytes = settings.oneshot_max_bytes;
    return tables;
}

Done print_explanation(const ScheduleQuestion &question) {
    QCCL_TRY(check_team(question));
    const auto type = parse_type(question.type);
    const auto op = parse_op(question.op);
    if (!type) return no_choice("--type", question.type, names_of(type_table));
    if (!op) return no_choice("--op", question.op, {op_names.begin(), op_names.end()});
    QCCL_TRY(const Codec codec, codec_called(question));
    QCCL_TRY(check_codec(codec, question.collective, *type, *op));
    if (!question.algorithm.empty()) QCCL_TRY(algorithm_called(question.algorithm));
    const uint64_t parts = parts_of(question.collective, question.ranks);
    const Problem problem{.collective = question.collective,
                          .count = question.bytes / type_bytes(*type) / parts,
                          .ranks = question.ranks,
                          .root = question.root,
                          .type = *type,
                          .codec = codec};
    QCCL_TRY(const Tables tables, tables_here());
    QCCL_TRY(const std::string text, explain(problem, tables, question.algorithm));
    std::fputs(text.c_str(), stdout);
    return {};
}

Done print_schedule(const ScheduleQuestion &question) {
    QCCL_TRY(check_team(question));
    QCCL_TRY(codec_called(question));
    QCCL_TRY(const Algorithm *const algorithm, algorithm_called(question.algorithm));
    QCCL_TRY(Schedule schedule, schedule_of(question, *algorithm, question.rank));
    const Team team{.size = question.ranks, .rank = question.rank, .root = question.root};
    std::fputs(print(Section{team, std::move(schedule)}).c_str(), stdout);
    return {};
}

static Result<std::string> read_text(const std::string &path) {
    if (path == "-")
        return std::string(std::istreambuf_iterator<char>(std::cin),
                           std::istreambuf_iterator<char>());
    // An iterator over a folder's stream would throw; the buffer as a whole only fails.
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    if (!file.is_open() || text.bad() || text.view().empty())
        return Error::make(Code::invalid_argument, "cannot read schedules from %s", path.c_str());
    return std::move(text).str();
}

// One section for each rank, in whatever order.
static Result<std::vector<Section>> read_sections(const ScheduleQuestion &question) {
    QCCL_TRY(const std::string text, read_text(question.file));
    QCCL_TRY(std::vector<Section> sections, parse(text));
    std::sort(sections.begin(), sections.end(),
              [](const Section &a, const Section &b) { return a.team.rank < b.team.rank; });
    const auto count = static_cast<uint32_t>(sections.size());
    if (count == 0)
        return Error::make(Code::invalid_argument, "%s holds no schedule", question.file.c_str());
    if (question.ranks != 0 && question.ranks != count)
        return Error::make(Code::invalid_argument, "%s holds %u schedules, and --ranks says %u",
                           question.file.c_str(), count, question.ranks);
    for (uint32_t rank = 0; rank < count; rank++) {
        const Team &team = sections[rank].team;
        if (team.rank != rank || team.size != count || team.root != sections[0].team.root)
            return Error::make(
                Code::invalid_argument,
                "%s holds %u schedules, so that rank %u of %u root %u should be among them; "
                "rank %u of %u root %u is",
                question.file.c_str(), count, rank, count, sections[0].team.root, team.rank,
                team.size, team.root);
    }
    return sections;
}

static Result<Verified> prove_file(const ScheduleQuestion &question, Theorem &theorem) {
    QCCL_TRY(const std::vector<Section> sections, read_sections(question));
    theorem.ranks = static_cast<uint32_t>(sections.size());
    theorem.root = sections[0].team.root;
    return verify(theorem,
                  [&](uint32_t rank) -> Result<Schedule> { return sections[rank].schedule; });
}

Done print_proof(const ScheduleQuestion &question) {
    QCCL_TRY(codec_called(question));
    QCCL_TRY(const Algorithm *const algorithm, algorithm_called(question.algorithm));
    Theorem theorem{.collective = question.collective,
                    .order = algorithm->order,
                    .ranks = question.ranks,
                    .root = question.root,
                    .own = algorithm->own};
    const auto begin = std::chrono::steady_clock::now();
    const auto prove = [&]() -> Result<Verified> {
        if (!question.file.empty()) return prove_file(question, theorem);
        QCCL_TRY(check_team(question));
        return verify(theorem,
                      [&](uint32_t rank) { return schedule_of(question, *algorithm, rank); });
    };
    QCCL_TRY(const Verified proof, prove());
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    std::printf("%s by %s of %u ranks%s%s holds: %" PRIu64 " steps, %" PRIu64
                " messages, %u rounds; proven in %.3f s\n",
                name(theorem.collective), algorithm->name, theorem.ranks,
                question.codec.empty() ? "" : " with ", question.codec.c_str(), proof.steps,
                proof.messages, proof.rounds, seconds.count());
    return {};
}

} // namespace qccl::perf
