// Tests bootstrap/launcher: what the variables of each launcher say about ranks and where to meet,
// and that an error names what is missing if they do not say enough.
#include "tests/kit/qtest.hpp"

#include "bootstrap/launcher.hpp"

#include <vector>

using namespace qccl;

using Environment = std::vector<const char *>;

static Result<LauncherInfo> read(Environment environment,
                                 std::optional<uint16_t> port = std::nullopt) {
    environment.push_back(nullptr);
    return read_launcher_info(environment.data(), port);
}

static LauncherInfo placed(const Environment &environment,
                           std::optional<uint16_t> port = std::nullopt) {
    const auto placement = read(environment, port);
    CHECK_OK(placement);
    return *placement;
}

static void check_refused(const Environment &environment, const std::string &because) {
    const auto placement = read(environment);
    CHECK(!placement);
    CHECK(placement.error().code == Code::invalid_argument);
    CHECK_EQ(std::string(placement.error().text), because);
}

static Environment with(Environment some, const Environment &more) {
    some.insert(some.end(), more.begin(), more.end());
    return some;
}

static const Environment by_torchrun{"PATH=/bin",    "RANK=3",           "LOCAL_RANK=1",
                                     "WORLD_SIZE=8", "MASTER_ADDR=host", "MASTER_PORT=29500",
                                     "GROUP_RANK=1", "RANKED=7"};
static const Environment by_hydra{"PMI_RANK=2", "PMI_SIZE=4", "PMI_FD=9", "MPI_LOCALNRANKS=4"};
static const Environment by_mpirun{"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4",
                                   "PMIX_NAMESPACE=474087425"};
static const Environment by_srun{"SLURM_PROCID=5", "SLURM_NTASKS=6", "SLURM_JOB_ID=77",
                                 "SLURM_STEP_ID=3"};

static void torchrun_says_all() {
    const LauncherInfo mine = placed(by_torchrun);
    CHECK_EQ(mine.rank, 3U);
    CHECK_EQ(mine.size, 8U);
    CHECK_EQ(mine.host, "host");
    CHECK_EQ(mine.host_variable, "MASTER_ADDR");
    CHECK_EQ(mine.port, 29501); // the agent holds MASTER_PORT itself
    CHECK_EQ(placed(by_torchrun, uint16_t{4711}).port, 4711);
    CHECK_EQ(placed({"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=::1"}, uint16_t{5}).port, 5);
}

static void hydra_has_a_wire() {
    const LauncherInfo mine = placed(by_hydra);
    CHECK_EQ(mine.rank, 2U);
    CHECK_EQ(mine.size, 4U);
    CHECK_EQ(mine.manager, 9);
    CHECK_EQ(mine.port, 0);
    CHECK_EQ(placed(by_torchrun).manager, -1);
}

static void open_mpi_stays_on_one_host_or_is_told() {
    const LauncherInfo local = placed(with(by_mpirun, {"OMPI_COMM_WORLD_LOCAL_SIZE=4"}));
    CHECK_EQ(local.rank, 1U);
    CHECK_EQ(local.host, "localhost");
    CHECK(local.port >= 16384 && local.port < 32768);
    const LauncherInfo remote =
        placed(with(by_mpirun, {"OMPI_COMM_WORLD_LOCAL_SIZE=2", "MASTER_ADDR=h"}));
    CHECK_EQ(remote.host, "h");
    CHECK_EQ(remote.port, local.port); // the same job
    const LauncherInfo other = placed({"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4",
                                       "OMPI_COMM_WORLD_LOCAL_SIZE=4", "PMIX_NAMESPACE=474087426"});
    CHECK(other.port != local.port);
    check_refused(
        with(by_mpirun, {"OMPI_COMM_WORLD_LOCAL_SIZE=2"}),
        "mpirun has started ranks on several hosts, and MASTER_ADDR is not set: the address of "
        "rank 0 (mpirun -x MASTER_ADDR=... hands it on)");
}

static void slurm_has_a_first_node() {
    const auto host_with = [](const Environment &more) { return placed(with(by_srun, more)).host; };
    CHECK_EQ(host_with({"SLURM_STEP_NODELIST=n[3-4]", "SLURM_JOB_NODELIST=n[1-9]"}), "n3");
    CHECK_EQ(host_with({"SLURM_JOB_NODELIST=n[1-9]", "SLURM_LAUNCH_NODE_IPADDR=10.0.0.9"}), "n1");
    CHECK_EQ(host_with({"SLURM_LAUNCH_NODE_IPADDR=10.0.0.9"}), "10.0.0.9");
    CHECK_EQ(host_with({"SLURM_STEP_NODELIST=n[3-4]", "MASTER_ADDR=m"}), "m");
    CHECK_EQ(host_with({"SLURM_NNODES=1", "SLURM_JOB_NODELIST=n1"}), "localhost");
    CHECK_EQ(host_with({"SLURM_STEP_NUM_NODES=2", "SLURM_NNODES=1", "SLURM_JOB_NODELIST=n1"}),
             "n1");

    const uint16_t port = placed(with(by_srun, {"SLURM_JOB_NODELIST=n1"})).port;
    CHECK(port >= 16384 && port < 32768);
    const Environment next_step{"SLURM_PROCID=5", "SLURM_NTASKS=6", "SLURM_JOB_ID=77",
                                "SLURM_STEP_ID=4", "SLURM_JOB_NODELIST=n1"};
    CHECK(placed(next_step).port != port);
    CHECK_EQ(placed(with(next_step, {"MASTER_PORT=29500"})).port, 29501);
    check_refused(with(by_srun, {"SLURM_JOB_NODELIST=n[1-"}),
                  "SLURM_JOB_NODELIST=n[1- is no list of nodes");
    check_refused(by_srun,
                  "SLURM_PROCID and SLURM_NTASKS are set, but none of SLURM_STEP_NODELIST, "
                  "SLURM_JOB_NODELIST, SLURM_LAUNCH_NODE_IPADDR and MASTER_ADDR: where rank 0 is");
}

static void lists_of_nodes_have_a_first() {
    const auto check_first = [](const char *list, const char *expected) {
        CHECK_EQ(first_of_node_list(list).value_or("-"), expected);
    };
    check_first("node7", "node7");
    check_first("a,b", "a");
    check_first("node[01-04,07],gpu3", "node01");
    check_first("node[07,01-04]", "node07");
    check_first("rack[1-2]n[03,5]-ib,x", "rack1n03-ib");
    check_first("node-1.cluster,node-2.cluster", "node-1.cluster");
    check_first("[10-12]", "10");
    for (const char *wrong :
         {"", ",a", "n[", "n[]", "n[-3]", "n]", "n[,3]", "n[[1]", "n[x]", "n[1;2]", "n[1[]"})
        check_first(wrong, "-");
}

// torchrun runs under mpirun under srun, and each hands on the variables of the others.
static void the_nearest_launcher_is_believed() {
    const auto launcher_of = [](const Environment &environment) {
        return std::string(placed(environment).launcher);
    };
    const Environment nested = with(by_srun, {"SLURM_JOB_NODELIST=n1"});
    const Environment deeper = with(nested, with(by_mpirun, {"OMPI_COMM_WORLD_LOCAL_SIZE=4"}));
    CHECK_EQ(launcher_of(nested), "srun");
    CHECK_EQ(launcher_of(deeper), "mpirun");
    CHECK_EQ(launcher_of(with(deeper, by_hydra)), "hydra");
    CHECK_EQ(launcher_of(with(with(deeper, by_hydra), by_torchrun)), "torchrun");
    // A batch script may well set WORLD_SIZE, while Slurm sets the variables of each rank.
    const LauncherInfo mixed =
        placed(with(nested, {"WORLD_SIZE=9", "MASTER_ADDR=m", "MASTER_PORT=29500", "RANK="}));
    CHECK_EQ(mixed.launcher, "srun");
    CHECK_EQ(mixed.size, 6U);
    CHECK_EQ(mixed.host, "m");
}

static void who_is_alone_meets_nobody() {
    for (const auto &[rank, size] : {std::pair{"RANK=0", "WORLD_SIZE=1"},
                                     {"PMI_RANK=0", "PMI_SIZE=1"},
                                     {"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1"},
                                     {"SLURM_PROCID=0", "SLURM_NTASKS=1"}})
        CHECK_EQ(placed({rank, size}).size, 1U);
}

static void what_is_missing_is_named() {
    check_refused({"RANK=1"}, "RANK is set, but not WORLD_SIZE");
    check_refused({"WORLD_SIZE=4", "RANK="}, "WORLD_SIZE is set, but not RANK");
    check_refused({"SLURM_NTASKS=4"}, "SLURM_NTASKS is set, but not SLURM_PROCID");
    check_refused({"RANK=1", "WORLD_SIZE=4"},
                  "RANK and WORLD_SIZE are set, but not MASTER_ADDR: the address of rank 0");
    check_refused(
        {"RANK=1", "WORLD_SIZE=4", "MASTER_ADDR=h"},
        "RANK, WORLD_SIZE and MASTER_ADDR are set, but neither QCCL_PORT nor MASTER_PORT: "
        "where rank 0 can be met");
    check_refused({"PMI_RANK=1", "PMI_SIZE=4"},
                  "PMI_RANK and PMI_SIZE are set, but not PMI_FD: the process manager's wire");
    check_refused({}, "no launcher has said which rank this is: start the program with torchrun, "
                      "mpirun or srun, or set RANK, WORLD_SIZE, MASTER_ADDR and QCCL_PORT in each "
                      "process. Launchers say it by one of: RANK and WORLD_SIZE; PMI_RANK and "
                      "PMI_SIZE; OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE; SLURM_PROCID and "
                      "SLURM_NTASKS");
}

static void numbers_must_fit() {
    check_refused({"RANK=x", "WORLD_SIZE=4"}, "RANK=x is no number from 0 to 65536");
    check_refused({"RANK=1", "WORLD_SIZE=-4"}, "WORLD_SIZE=-4 is no number from 0 to 65536");
    check_refused({"RANK=4", "WORLD_SIZE=4"},
                  "RANK=4 cannot be with WORLD_SIZE=4: ranks count from 0 to 3");
    check_refused({"RANK=0", "WORLD_SIZE=0"}, "WORLD_SIZE=0: a job has at least one rank");
    check_refused({"RANK=1", "WORLD_SIZE=4", "MASTER_ADDR=h", "MASTER_PORT=65535"},
                  "MASTER_PORT=65535 is no number from 0 to 65534");
    check_refused({"PMI_RANK=1", "PMI_SIZE=4", "PMI_FD=9x"},
                  "PMI_FD=9x is no number from 0 to 2147483647");
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(torchrun_says_all),
        QTEST(hydra_has_a_wire),
        QTEST(open_mpi_stays_on_one_host_or_is_told),
        QTEST(slurm_has_a_first_node),
        QTEST(lists_of_nodes_have_a_first),
        QTEST(the_nearest_launcher_is_believed),
        QTEST(who_is_alone_meets_nobody),
        QTEST(what_is_missing_is_named),
        QTEST(numbers_must_fit),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
