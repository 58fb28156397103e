// Implements qccl-info schedule and verify: emits or reads schedules, prints one or proves all.
#include "perf/info/info_commands.hpp"

#include "coll/algorithm.hpp"
#include "perf/report/tool_files.hpp"
#include "schedule/lower.hpp"
#include "schedule/schedule.hpp"
#include "schedule/verify.hpp"

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>

namespace qccl::perf {

static Result<Schedule> schedule_of(const ScheduleRequest &request, uint32_t rank) {
    QCCL_TRY(const Schedule author,
             emit(request.algorithm, request.collective, request.team(rank)));
    if (!request.codec) return author;
    return place_codec(author, request.codec->owner);
}

Done check_request(const ScheduleRequest &request) {
    QCCL_TRY(check_codec(request.codec.value_or(Codec{}), request.collective, DataType::float32,
                         RedOp::sum));
    const Algorithm &algorithm = request.algorithm;
    if (algorithm && !algorithm.has(request.collective))
        return invalid_argument("%s has no %s", spec(algorithm).c_str(), name(request.collective));
    if (request.ranks == 0)
        return request.file.empty() ? invalid_argument("--ranks is required without --file")
                                    : Done{};
    if (request.places && request.places->ranks() != request.ranks)
        return invalid_argument("--hosts has %u ranks, and --ranks says %u",
                                request.places->ranks(), request.ranks);
    for (const auto &[name, rank] :
         {std::pair("--rank", request.rank), std::pair("--root", request.root)})
        if (rank >= request.ranks)
            return invalid_argument("%s %u is none of the %u ranks", name, rank, request.ranks);
    return {};
}

Done print_schedule(const ScheduleRequest &request) {
    QCCL_TRY(Schedule schedule, schedule_of(request, request.rank));
    std::fputs(print(Section{request.team(request.rank), std::move(schedule)}).c_str(), stdout);
    return {};
}

// Checks that every rank has exactly one section and that all sections belong to one job. The
// sections are sorted by rank.
static Done check_sections(const std::vector<Section> &sections, const std::string &called) {
    const Team &first = sections[0].team;
    const auto count = static_cast<uint32_t>(sections.size());
    for (const auto &[team, schedule] : sections)
        if (team.size != first.size || team.root != first.root)
            return invalid_argument(
                "%s holds schedules of several jobs: rank %u of %u root %u, and "
                "rank %u of %u root %u",
                called.c_str(), first.rank, first.size, first.root, team.rank, team.size,
                team.root);
    for (uint32_t rank = 0; rank < std::min(count, first.size); rank++)
        if (const uint32_t there = sections[rank].team.rank; there != rank)
            return invalid_argument("%s holds %s of rank %u of %u", called.c_str(),
                                    there > rank ? "no schedule" : "several schedules",
                                    std::min(rank, there), first.size);
    if (count < first.size)
        return invalid_argument("%s holds no schedule of rank %u of %u", called.c_str(), count,
                                first.size);
    if (count > first.size)
        return invalid_argument("%s holds several schedules of rank %u of %u", called.c_str(),
                                sections[first.size].team.rank, first.size);
    return {};
}

// Reads one section for each rank, in any order, and sorts them by rank.
static Result<std::vector<Section>> read_sections(const ScheduleRequest &request) {
    const std::string called = request.file == "-" ? "standard input" : request.file;
    QCCL_TRY(const std::string text, read_text(request.file, called));
    auto parsed = parse(text);
    if (!parsed) return invalid_argument("%.200s: %.280s", called.c_str(), parsed.error().text);
    std::vector<Section> sections = std::move(*parsed);
    std::sort(sections.begin(), sections.end(),
              [](const Section &a, const Section &b) { return a.team.rank < b.team.rank; });
    const auto count = static_cast<uint32_t>(sections.size());
    if (count == 0) return invalid_argument("%s holds no schedule", called.c_str());
    QCCL_TRY(check_sections(sections, called));
    if (request.ranks != 0 && request.ranks != count)
        return invalid_argument("%s holds %u schedules, and --ranks says %u", called.c_str(), count,
                                request.ranks);
    return sections;
}

// Returns the schedules of the file or of the algorithm. With a file, also sets the theorem's ranks
// and root.
static Result<ScheduleOf> find_schedules(const ScheduleRequest &request, Theorem &theorem) {
    if (request.file.empty())
        return ScheduleOf([&request](uint32_t rank) { return schedule_of(request, rank); });
    QCCL_TRY(std::vector<Section> sections, read_sections(request));
    theorem.ranks = static_cast<uint32_t>(sections.size());
    theorem.root = sections[0].team.root;
    return ScheduleOf(
        [codec = request.codec, sections = std::move(sections)](uint32_t rank) -> Result<Schedule> {
            const Schedule &schedule = sections[rank].schedule;
            return codec && !schedule.is_placed ? place_codec(schedule, codec->owner) : schedule;
        });
}

static Done print_synchronous_proof(const ScheduleOf &schedules, uint32_t ranks) {
    QCCL_TRY(const SynchronousProof proof, verify_synchronous(ranks, schedules));
    std::printf("holds where a send is done only when its receive is posted, too: ");
    if (proof.in_flight == 1)
        std::printf("sends and receives may block\n");
    else
        std::printf("a rank then has up to %u tasks in flight (sends, receives, joined steps)\n",
                    proof.in_flight);
    return {};
}

Done print_proof(const ScheduleRequest &request) {
    Theorem theorem{.collective = request.collective,
                    .order = request.algorithm.order(request.team(0)),
                    .ranks = request.ranks,
                    .root = request.root,
                    .own = request.algorithm.own(),
                    .owner = request.codec.value_or(Codec{}).owner};
    const auto begin = std::chrono::steady_clock::now();
    QCCL_TRY(const ScheduleOf schedules, find_schedules(request, theorem));
    QCCL_TRY(const Verified proof, verify(theorem, schedules));
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    std::printf("%s by %s of %u ranks%s%s holds: %" PRIu64 " steps, %" PRIu64
                " messages, %u rounds; proven in %.3f s\n",
                name(theorem.collective), spec(request.algorithm).c_str(), theorem.ranks,
                request.codec ? " with " : "", request.codec ? spec(*request.codec).c_str() : "",
                proof.steps, proof.messages, proof.rounds, seconds.count());
    if (!request.has_synchronous_sends) return {};
    return print_synchronous_proof(schedules, theorem.ranks);
}

} // namespace qccl::perf
