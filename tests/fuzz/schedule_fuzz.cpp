// Fuzzes lib/schedule: a text that parse accepts prints to one that reads back the same. Placing,
// lowering and verifying such a schedule either refuses it or succeeds.
#include "schedule/lower.hpp"
#include "schedule/schedule.hpp"
#include "schedule/shape.hpp"
#include "schedule/verify.hpp"

#include <cstdio>
#include <cstdlib>

using namespace qccl;

static void require(bool condition, const char *what) {
    if (condition) return;
    fprintf(stderr, "%s\n", what);
    abort();
}

static void prove(const std::vector<Section> &sections) {
    const auto ranks = static_cast<uint32_t>(sections.size());
    for (int c = 0; c < 5; c++)
        for (const auto &[order, own] :
             {std::pair(&by_rank, OwnInput::exact), std::pair(&by_ring, OwnInput::exact),
              std::pair(&by_rank, OwnInput::as_encoded)}) {
            const Theorem theorem{static_cast<Collective>(c), order, ranks, sections[0].team.root,
                                  own};
            const auto as_written = verify(theorem, [&](uint32_t rank) -> Result<Schedule> {
                return sections[rank].schedule;
            });
            require(as_written || as_written.error().text[0] != 0, "a refusal without a sentence");
            const auto placed = verify(theorem, [&](uint32_t rank) -> Result<Schedule> {
                return place_codec(sections[rank].schedule);
            });
            require(placed || placed.error().text[0] != 0, "a refusal without a sentence");
            if (!placed) continue;
            const auto joined = verify(theorem, [&](uint32_t rank) -> Result<Schedule> {
                QCCL_TRY(const Schedule schedule, place_codec(sections[rank].schedule));
                return fuse(schedule).schedule;
            });
            // Fused steps occupy all their wire slots at once, which may exceed the limit.
            require(joined || std::string_view(joined.error().text).find("wire slot") !=
                                  std::string_view::npos,
                    "joining broke what was right");
        }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    const auto sections = parse({reinterpret_cast<const char *>(data), bytes});
    if (!sections) {
        require(sections.error().code == Code::invalid_argument, "a refusal of the wrong kind");
        require(std::string_view(sections.error().text).starts_with("line "),
                "a refusal without a line");
        return 0;
    }
    std::string text;
    for (const Section &section : *sections) text += print(section);
    const auto again = parse(text);
    require(again.is_ok() && *again == *sections, "what is printed does not read back");
    constexpr size_t most_ranks = 16;
    if (!sections->empty() && sections->size() <= most_ranks) prove(*sections);
    return 0;
}
