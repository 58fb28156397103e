// Implements demo_advice.hpp: plans the sum on three networks of hosts with one rank each.
#include "perf/demo_advice.hpp"

#include "perf/advice.hpp"
#include "perf/machine_options.hpp"
#include "perf/number_text.hpp"

#include <algorithm>
#include <cstdio>
#include <thread>

namespace qccl::perf {

static constexpr uint32_t networks[] = {1, 10, 100}; // Gbit/s

// Returns a machine of hosts like this one, with one rank each.
static Result<Machine> machine_of(uint32_t ranks, uint32_t gigabits) {
    const std::string rate = std::to_string(gigabits) + "gbit";
    MachineQuestion question;
    question.topology = std::to_string(ranks) + " x node(" +
                        std::to_string(std::max(1U, std::thread::hardware_concurrency())) +
                        " core) net:" + rate;
    question.bytes_per_second = uint64_t{gigabits} * 1'000'000'000 / 8; // overrides settings
    return find_machine(question);
}

static void print_row(uint32_t gigabits, const Advice &advice, const BudgetAdvice &chosen) {
    char nmse[32] = "", faster[32] = "";
    const bool is_codec = chosen.outcome == BudgetAdvice::Outcome::codec;
    if (is_codec) {
        std::snprintf(nmse, sizeof nmse, "%.2e", chosen.trial->nmse);
        std::snprintf(faster, sizeof faster, "%.2f", gain(advice, *chosen.trial));
    }
    std::printf("%3u Gbit/s  %-20s %10s %10s %10s %13s\n", gigabits,
                is_codec ? spec(chosen.trial->codec).c_str() : "none", nmse,
                time_text(advice.lossless.cost.time_ns).c_str(),
                is_codec ? time_text(chosen.trial->plan.cost.time_ns).c_str() : "", faster);
}

static std::string setting_of(const BudgetAdvice &chosen) {
    if (chosen.outcome != BudgetAdvice::Outcome::codec) return "leave QCCL_CODEC alone";
    return "export QCCL_CODEC=" + spec(chosen.trial->codec);
}

static Done print_rows(const Operation &operation, const Source &data) {
    QCCL_TRY(const Machine first, machine_of(operation.ranks, networks[0]));
    // All networks have the ranks in the same places, on which the errors depend.
    ErrorMeter meter(data, {.count = operation.count,
                            .ranks = operation.ranks,
                            .type = operation.type,
                            .codec = {},
                            .places = first.places.get()});
    std::string advised, last;
    for (const uint32_t gigabits : networks) {
        QCCL_TRY(const Machine machine, machine_of(operation.ranks, gigabits));
        QCCL_TRY(const Advice advice, try_codecs(meter, inputs_of(machine)));
        const BudgetAdvice chosen = advise(advice, usual_nmse);
        print_row(gigabits, advice, chosen);
        const std::string setting = setting_of(chosen);
        if (setting != last) advised += (advised.empty() ? "" : "; ") + setting + " at ";
        advised += (setting == last ? " and " : "") + std::to_string(gigabits) + " Gbit/s";
        last = setting;
    }
    std::printf(
        "\nFor an NMSE of at most %g: %s.\nWhere the network interfaces do not state their rate, "
        "calls stay lossless until QCCL_LINK_RATE\n(1G, 10G, 100G) or `qccl-perf calibrate` tells "
        "it. `qccl-info advise` advises for data and\nnetworks of yours.\n",
        usual_nmse, advised.c_str());
    return {};
}

void print_network_advice(const Operation &operation, const Source &data) {
    if (operation.ranks < 2 || !info(operation.type).is_float) return;
    std::printf("\nInside one machine memory is the bound, and a codec gains little. The same data "
                "summed over %u hosts\nwith a process each (times are predicted, errors measured):"
                "\n\n%-10s  %-20s %10s %10s %10s %13s\n",
                operation.ranks, "network", "codec", "NMSE", "lossless", "with codec",
                "times as fast");
    if (const Done done = print_rows(operation, data); !done)
        std::printf("\nNo advice: %s.\n", done.error().text);
}

} // namespace qccl::perf
