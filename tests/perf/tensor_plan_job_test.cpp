// Tests a plan file of tensors in a job of threads: each tensor's sum has the codec, the algorithm
// and the parts that the file gives, and equals a rehearsal of the same plan to the bit.
#include "tests/kit/plan_kit.hpp"

#include "perf/info/advice.hpp"
#include "plan/tensor_plan.hpp"

#include <qccl/qccl.h>

#include <cstdlib>
#include <fstream>
#include <thread>

#include <unistd.h>

using namespace qccl;
using namespace qccl::perf;
using namespace qtest;

namespace {

constexpr int ranks = 4;

const std::vector<NamedTensor> &tensors() {
    static const std::vector<NamedTensor> all{{"bias", 96},
                                              {"weight", 60000},
                                              {"embedding", 1 << 18},
                                              {"half", 1 << 18, DataType::float16}};
    return all;
}

// Returns plans for four hosts at 1 Gbit/s; ranks that are threads follow such plans, too.
std::vector<TensorPlan> plans_for_hosts() {
    const RankTopology apart({{0, 0, 0}, {0, 1, 0}, {0, 2, 0}, {0, 3, 0}});
    Problem like = all_reduce(0, ranks, DataType::float32, "int8:min=4K");
    like.places = &apart;
    TensorPlanner planner(like, inputs);
    std::vector<TensorPlan> plans;
    for (const NamedTensor &tensor : tensors()) {
        const auto made = planner.plan(tensor.count, tensor.type);
        CHECK_OK(made);
        plans.push_back(*made);
    }
    return plans;
}

// Communicators that were created while QCCL_PLAN_FILE named the plan.
class Job {
public:
    explicit Job(const std::string &plan) {
        char path[] = "/tmp/qccl-plan-XXXXXX";
        const int file = mkstemp(path);
        CHECK(file >= 0);
        close(file);
        std::ofstream(path) << plan;
        setenv("QCCL_PLAN_FILE", path, 1);
        const qcclResult_t result = qcclCommInitAll(comms_.data(), ranks, nullptr);
        unsetenv("QCCL_PLAN_FILE");
        unlink(path);
        if (result != qcclSuccess) throw Failure{qcclGetLastError(nullptr)};
    }
    ~Job() {
        std::vector<std::jthread> threads;
        for (const qcclComm_t comm : comms_)
            threads.emplace_back([comm] { (void)qcclCommDestroy(comm); });
    }
    Job(const Job &) = delete;
    Job &operator=(const Job &) = delete;

    std::string explanation(const NamedTensor &tensor) const {
        const std::string what =
            "all_reduce count=" + std::to_string(tensor.count) + " type=" + name(tensor.type);
        std::string text(1 << 14, '\0');
        size_t bytes = text.size();
        CHECK_EQ(qcclExplain(comms_[0], what.c_str(), text.data(), &bytes), qcclSuccess);
        return text.c_str();
    }

    // Runs an all-reduce and returns the sum of rank 0.
    std::vector<std::byte> sum(const NamedTensor &tensor, const Source &inputs) const {
        std::vector<std::vector<std::byte>> buffers(ranks);
        qcclResult_t results[ranks];
        {
            std::vector<std::jthread> threads;
            for (uint32_t rank = 0; rank < ranks; rank++)
                threads.emplace_back([&, rank] {
                    std::vector<std::byte> &buffer = buffers[rank];
                    buffer.resize(tensor.count * type_bytes(tensor.type));
                    inputs.read(rank, tensor.type, 0, tensor.count, buffer.data());
                    results[rank] =
                        qcclAllReduce(buffer.data(), buffer.data(), tensor.count,
                                      tensor.type == DataType::float16 ? qcclFloat16 : qcclFloat32,
                                      qcclSum, comms_[rank], QCCL_STREAM_SYNC);
                });
        }
        for (const qcclResult_t result : results) CHECK_EQ(result, qcclSuccess);
        return buffers[0];
    }

private:
    std::vector<qcclComm_t> comms_ = std::vector<qcclComm_t>(ranks);
};

void check_says(const std::string &text, const std::string &part) {
    if (text.find(part) == std::string::npos) throw Failure{"no \"" + part + "\" in\n" + text};
}

} // namespace

static void a_job_does_what_the_plan_says() {
    const std::vector<TensorPlan> plans = plans_for_hosts();
    const Job job(print(plan_file_of(tensors(), plans, ranks, 1)));
    const auto inputs = make_gaussian(8);
    size_t compressed = 0, cut = 0;
    for (size_t i = 0; i < tensors().size(); i++) {
        const NamedTensor &tensor = tensors()[i];
        const Plan &plan = plans[i].plan;
        compressed += plans[i].partitioning.is_compressed;
        cut += plan.geometry.instances > 1;
        const std::string text = job.explanation(tensor),
                          by = " by line " + std::to_string(i + 3) + " of QCCL_PLAN_FILE";
        check_says(text,
                   "codec " + spec(plan.codec) + (plan.codec.is_lossless() ? "" : ":min=0") + by);
        check_says(text, "algorithm " + spec(plan.algorithm) + by);
        check_says(text, "cut" + by);
        check_says(text, "; " + std::to_string(plan.geometry.instances) + " segment");
        const auto expected = rehearse({.algorithm = plan.algorithm,
                                        .codec = plan.codec,
                                        .inner_codec = plan.inner_codec,
                                        .type = tensor.type,
                                        .count = tensor.count,
                                        .ranks = ranks},
                                       *inputs);
        CHECK_OK(expected);
        CHECK(job.sum(tensor, *inputs) == *expected);
    }
    CHECK(compressed > 0 && compressed < tensors().size());
    CHECK(cut > 0);
}

static void another_plan_is_another_sum() {
    const std::vector<TensorPlan> plans = plans_for_hosts();
    const NamedTensor &large = tensors()[2];
    CHECK(plans[2].partitioning.is_compressed);
    const auto inputs = make_gaussian(8);
    const Job planned(print(plan_file_of(tensors(), plans, ranks, 1))),
        unplanned("qccl-plan version=1\n");
    CHECK(planned.sum(large, *inputs) != unplanned.sum(large, *inputs));
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(a_job_does_what_the_plan_says),
        QTEST(another_plan_is_another_sum),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
