// Tests FairShare of lib/plan/simulator/fabric and Activities of lib/plan/simulator/simulator:
// rates and ends are those of a slow twin, which fills all links step by step and moves from one
// end to the next.
#include "tests/kit/qtest.hpp"

#include "plan/simulator/simulator.hpp"

#include <algorithm>
#include <cmath>
#include <random>

using namespace qccl;

namespace {

using Use = FairShare::LinkShare;

struct TwinFlow {
    std::vector<Use> uses;
    double most_rate = FairShare::unlimited;
    double left = 0, rate = 0, begin = 0, end = -1;
};

// All rates grow together; a flow that meets a full link or its own limit keeps its rate.
void fill(const std::vector<double> &capacities, const std::vector<TwinFlow *> &flows) {
    std::vector<TwinFlow *> growing = flows;
    std::vector<double> left = capacities;
    for (TwinFlow *const flow : flows) flow->rate = 0;
    while (!growing.empty()) {
        std::vector<double> weights(left.size());
        double step = FairShare::unlimited;
        for (const TwinFlow *const flow : growing) {
            step = std::min(step, flow->most_rate - flow->rate);
            for (const Use &use : flow->uses) weights[use.link] += use.weight;
        }
        for (size_t l = 0; l < left.size(); l++)
            if (weights[l] > 0) step = std::min(step, left[l] / weights[l]);
        for (TwinFlow *const flow : growing) flow->rate += step;
        for (size_t l = 0; l < left.size(); l++) left[l] -= step * weights[l];
        std::erase_if(growing, [&](const TwinFlow *flow) {
            return flow->rate >= flow->most_rate * (1 - 1e-9) ||
                   std::ranges::any_of(flow->uses, [&](const Use &use) {
                       return left[use.link] <= capacities[use.link] * 1e-9;
                   });
        });
    }
}

bool are_near(double a, double b) { return std::abs(a - b) <= 1e-6 * std::max(a, b); }

struct Cases {
    std::mt19937_64 random{7};

    uint32_t below(uint32_t n) { return static_cast<uint32_t>(random() % n); }
    double amount() { return 1 + below(1000) / 10.0; }
    std::vector<double> capacities() {
        std::vector<double> found(1 + below(6));
        for (double &each : found) each = amount();
        return found;
    }
    TwinFlow flow(uint32_t links) {
        TwinFlow found;
        for (uint32_t l = 0; l < links; l++)
            if (below(3) == 0) found.uses.push_back({l, 1.0 + below(3)});
        if (found.uses.empty() || below(4) == 0) found.most_rate = amount();
        return found;
    }
};

} // namespace

static void rates_are_those_of_filling() {
    Cases cases;
    for (int round = 0; round < 300; round++) {
        const auto capacities = cases.capacities();
        FairShare shares;
        for (const double capacity : capacities) shares.add_link(capacity);
        std::vector<std::pair<uint32_t, TwinFlow>> flows;
        for (int change = 0; change < 30; change++) {
            if (!flows.empty() && cases.below(3) == 0) {
                const uint32_t gone = cases.below(static_cast<uint32_t>(flows.size()));
                shares.end(flows[gone].first);
                flows.erase(flows.begin() + gone);
            } else {
                const TwinFlow flow = cases.flow(static_cast<uint32_t>(capacities.size()));
                flows.emplace_back(shares.begin(flow.uses, flow.most_rate), flow);
            }
            if (cases.below(2) == 0) continue;
            shares.settle([](uint32_t) {});
            std::vector<TwinFlow *> all;
            for (auto &[number, flow] : flows) all.push_back(&flow);
            fill(capacities, all);
            for (const auto &[number, flow] : flows)
                CHECK(are_near(shares.rate(number), flow.rate));
        }
    }
}

static void changes_are_told() {
    FairShare shares;
    shares.add_link(12);
    shares.add_link(2);
    const Use wide[] = {{0, 1}}, both[] = {{0, 1}, {1, 1}};
    std::vector<uint32_t> told;
    const auto tell = [&](uint32_t flow) { told.push_back(flow); };
    const uint32_t first = shares.begin(wide);
    shares.settle(tell);
    CHECK(told == std::vector{first});
    CHECK_EQ(shares.rate(first), 12.0);
    const uint32_t second = shares.begin(both);
    told.clear();
    shares.settle(tell);
    CHECK_EQ(told.size(), size_t{2});
    CHECK_EQ(shares.rate(first), 10.0);
    CHECK_EQ(shares.rate(second), 2.0);
    told.clear();
    shares.settle(tell);
    CHECK(told.empty());
    shares.end(second);
    shares.settle(tell);
    CHECK(told == std::vector{first});
    CHECK_EQ(shares.rate(first), 12.0);
}

// Flows begin one after the other while other flows end.
static void ends_are_those_of_the_twin() {
    Cases cases;
    for (int round = 0; round < 300; round++) {
        const auto capacities = cases.capacities();
        std::vector<TwinFlow> flows;
        for (uint32_t i = 0; i < 1 + cases.below(12); i++) {
            flows.push_back(cases.flow(static_cast<uint32_t>(capacities.size())));
            if (flows.back().uses.empty()) flows.back().uses.push_back({0, 1});
            flows.back().most_rate = FairShare::unlimited;
            flows.back().left = cases.amount();
            flows.back().begin = cases.below(20) / 4.0;
        }
        Activities activities;
        for (const double capacity : capacities) activities.add_link(capacity);
        std::vector<double> ends(flows.size());
        for (uint32_t i = 0; i < flows.size(); i++) activities.begin_arrival(i, flows[i].begin);
        while (const auto event = activities.next()) {
            const uint32_t i = event->subject;
            if (event->kind == Activities::Kind::arrival)
                activities.begin_stream(i, flows[i].left, flows[i].uses);
            else
                activities.end_stream(*event);
            ends[i] = activities.now();
        }
        for (double now = 0; std::ranges::any_of(flows, [](auto &f) { return f.end < 0; });) {
            std::vector<TwinFlow *> active;
            double step = FairShare::unlimited;
            for (TwinFlow &flow : flows) {
                if (flow.end >= 0) continue;
                if (flow.begin <= now)
                    active.push_back(&flow);
                else
                    step = std::min(step, flow.begin - now);
            }
            fill(capacities, active);
            for (const TwinFlow *flow : active) step = std::min(step, flow->left / flow->rate);
            now += step;
            for (TwinFlow *flow : active)
                if ((flow->left -= flow->rate * step) <= 1e-9) flow->end = now;
        }
        for (uint32_t i = 0; i < flows.size(); i++) CHECK(are_near(ends[i], flows[i].end));
    }
}

static void a_stream_goes_on_where_it_was() {
    Activities activities;
    activities.add_link(2);
    const Use use[] = {{0, 1}};
    activities.begin_stream(0, 10, use);
    activities.begin_stream(1, 30, use);
    auto event = activities.next(); // after 10 at half the rate
    CHECK_EQ(event->subject, 0U);
    CHECK_EQ(activities.now(), 10.0);
    activities.continue_stream(*event, 5);
    event = activities.next();
    CHECK_EQ(event->subject, 0U);
    CHECK_EQ(activities.now(), 15.0);
    activities.end_stream(*event);
    event = activities.next(); // 15 left, alone
    CHECK_EQ(event->subject, 1U);
    CHECK_EQ(activities.now(), 22.5);
    activities.end_stream(*event);
    CHECK(!activities.next());
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(rates_are_those_of_filling),
        QTEST(changes_are_told),
        QTEST(ends_are_those_of_the_twin),
        QTEST(a_stream_goes_on_where_it_was),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
