// Tests perf/cli/perf_arguments: every option of nccl-tests 2.19 is accepted, or refused by name
// with the reason, by its letter and by its long form.
#include "tests/kit/qtest.hpp"

#include "perf/cli/perf_arguments.hpp"

#include <sstream>
#include <string>

using namespace qccl;
using namespace qccl::perf;

struct Answered {
    std::variant<PerfArguments, Answer> parsed;

    const PerfArguments &accepted() const {
        if (!std::holds_alternative<PerfArguments>(parsed))
            throw qtest::Failure{"refused: " + std::get<Answer>(parsed).text};
        return std::get<PerfArguments>(parsed);
    }
};

static Answered ask(const std::string &line, const CallKind &kind = {},
                    const Started &started = {}) {
    std::istringstream words(line);
    std::vector<std::string> arguments;
    for (std::string word; words >> word;) arguments.push_back(word);
    return {parse_perf_arguments(kind, "test", arguments, started)};
}

static PerfArguments accepted(const std::string &line) { return ask(line).accepted(); }

static void check_refused(const Answered &answered, const std::string &because) {
    CHECK(std::holds_alternative<Answer>(answered.parsed));
    const Answer &answer = std::get<Answer>(answered.parsed);
    CHECK_EQ(answer.status, 2);
    CHECK(answer.text.starts_with("qccl-perf: "));
    CHECK_EQ(answer.text.find('\n'), answer.text.size() - 1);
    if (answer.text.find(because) == std::string::npos)
        throw qtest::Failure{"'" + answer.text + "' does not say: " + because};
}

static void check_refused(const std::string &line, const std::string &because) {
    check_refused(ask(line), because);
}

static void the_defaults_are_those_of_nccl_tests() {
    const PerfArguments arguments = accepted("");
    CHECK_EQ(arguments.min_bytes, 32U << 20);
    CHECK_EQ(arguments.max_bytes, 32U << 20);
    CHECK_EQ(arguments.step_bytes, 1U << 20);
    CHECK_EQ(arguments.step_factor, 1U);
    CHECK_EQ(arguments.warmup_iterations, 1U);
    CHECK(!arguments.aggregated);
    CHECK_EQ(arguments.cycles, 1U);
    CHECK_EQ(arguments.checks, 1U);
    CHECK(arguments.ops == std::vector{RedOp::sum});
    CHECK(!arguments.names_sizes);
    CHECK(!arguments.types);
    CHECK(!arguments.iterations);
    CHECK_EQ(arguments.ranks, 2U);
    CHECK(arguments.launch == Launch::processes);
}

// Tries each option by its letter, with its value glued on as getopt takes it, and by its long
// name.
static void every_option_is_known_by_both_names() {
    struct Option {
        const char *letter, *name, *value;
    };
    static constexpr Option options[] = {
        {"-t", "--nthreads", "3"},
        {"-g", "--ngpus", "1"},
        {"-b", "--minbytes", "8"},
        {"-e", "--maxbytes", "1G"},
        {"-i", "--stepbytes", "64K"},
        {"-f", "--stepfactor", "2"},
        {"-n", "--iters", "7"},
        {"-w", "--warmup_iters", "0"},
        {"-m", "--agg_iters", "4"},
        {"-N", "--run_cycles", "0"},
        {"-p", "--parallel_init", "1"},
        {"-c", "--check", "0"},
        {"-o", "--op", "all"},
        {"-d", "--datatype", "all"},
        {"-r", "--root", "all"},
        {"-z", "--blocking", "2"},
        {"-y", "--stream_null", "1"},
        {"-T", "--timeout", "60"},
        {"-G", "--cudagraph", "0"},
        {"-C", "--report_cputime", "1"},
        {"-a", "--average", "1"},
        {"-S", "--report_timestamps", "1"},
        {"-J", "--output_file", "x.json"},
        {"-R", "--local_register", "1"},
        {"-D", "--device_implementation", "0"},
        {"-M", "--memory", "1"},
        {"-u", "--unalign", "1"},
        {"-I", "--per_iter_timing", "1"},
        {"-K", "--per_iter_skip", "0"},
    };
    for (const Option &option : options) {
        const std::string value = option.value;
        (void)accepted(option.letter + (" " + value));
        (void)accepted(option.letter + value);
        (void)accepted(option.name + (" " + value));
        (void)accepted(option.name + ("=" + value));
    }
}

static void of_an_option_that_is_repeated_the_last_counts() {
    const PerfArguments a =
        accepted("-b 1 -e 8 --minbytes 2 -b 4 -n 9 -n 7 --codec int8 "
                 "--codec none,int4 -o max -o avg -I 1 -I 0 --ranks 2 --ranks 3");
    CHECK_EQ(a.min_bytes, 4U);
    CHECK_EQ(a.iterations.value(), 7U);
    CHECK_EQ(a.codecs.size(), 2U);
    CHECK(a.ops == std::vector{RedOp::avg});
    CHECK(!a.reports_iterations);
    CHECK_EQ(a.ranks, 3U);
    check_refused("-n 7 -n x", "--iters: 'x' is no number");
}

// This holds for the options of nccl-tests, as getopt_long takes them, and not for QCCL's own.
static void the_beginning_of_a_long_name_is_enough_where_it_is_clear() {
    const PerfArguments a = accepted("--min 4 --max=8 --iter 7 --warm=3 --agg 2 --stepf 3");
    CHECK(a.min_bytes == 4 && a.max_bytes == 8 && a.iterations == 7U);
    CHECK(a.warmup_iterations == 3 && a.aggregated == 2U && a.step_factor == 3);
    CHECK_EQ(accepted("--per_iter_t 1 --per_iter_s 4").skipped_iterations, 4U);
    check_refused("--step 2", "--step is ambiguous: --stepbytes, --stepfactor\n");
    check_refused("--per_iter=1", "--per_iter is ambiguous: --per_iter_timing, --per_iter_skip\n");
    check_refused("--m 1K", "--m is ambiguous: --minbytes, --maxbytes, --memory\n");
    check_refused("--rank 2", "did you mean --ranks?");
    check_refused("--json --min", "needs a value");
}

static void devices_are_dealt_out_to_the_ranks() {
    const PerfArguments alone = accepted("");
    CHECK_EQ(alone.device_of(3), std::string("host"));
    CHECK_EQ(alone.first_gpu(), std::string());
    CHECK(!alone.is_all_gpus());
    const PerfArguments mixed = accepted("--device host,emulated:1,cuda:12 --ranks 4");
    const char *const dealt[] = {"host", "emulated:1", "cuda:12", "host"};
    for (uint32_t rank = 0; rank < 4; rank++) CHECK_EQ(mixed.device_of(rank), dealt[rank]);
    CHECK_EQ(mixed.first_gpu(), std::string("emulated:1"));
    CHECK(!mixed.is_all_gpus());
    CHECK(accepted("--device emulated:0 -t 2").is_all_gpus());
    CHECK_EQ(accepted("--device host").ranks, 2U);
    CHECK_EQ(accepted("--device host,cuda:0,cuda:1").ranks, 3U);
    check_refused("--device host,cuda:0,cuda:1 -t 2", "3 devices for 2 ranks");
    check_refused("--device host,cuda:0 --ranks 1", "2 devices for 1 rank");
    const std::vector<std::string> of_ranks =
        accepted("--device host,cuda:0 -t 3").devices_of_ranks();
    CHECK_EQ(of_ranks.size(), size_t{3});
    CHECK_EQ(of_ranks.back(), std::string("host"));
}

static void what_is_of_the_host_is_refused_of_gpus() {
    for (const char *list : {"gpu", "emulated", "emulated:", "emulated:0,", ",host", "emulated:x"})
        check_refused(std::string("--device ") + list, "cuda:0");
    check_refused("--device emulated:0 -R 1", "--local_register 1");
    check_refused("--device host,emulated:0 -R 1", "emulated:0");
    check_refused("--device emulated:0 --buffers malloc", "--buffers malloc");
    (void)accepted("--device emulated:0 -R 0");
    (void)accepted("--device host -R 1");
    (void)accepted("--device host,emulated:0 --buffers malloc");
    const Started by_mpi{.by_mpi = true, .by_environment = ""};
    check_refused(ask("--baseline mpi --device cuda:1", {Collective::all_reduce}, by_mpi),
                  "--baseline mpi measures buffers of the host, and --device names cuda:1");
    (void)ask("--baseline mpi --device host", {Collective::all_reduce}, by_mpi).accepted();
    (void)ask("--device emulated:0", {Collective::all_reduce}, by_mpi).accepted();
}

static void what_means_nothing_is_refused_with_the_reason() {
    for (const char *option : {"-x 1", "--cta_policy 1"}) check_refused(option, "CTAs");
    for (const char *option : {"-V 4", "--device_cta_count 4"}) check_refused(option, "CTAs");
    for (const char *option : {"-x", "--cta_policy", "-V"}) check_refused(option, "CTAs");
    check_refused("-K 1", "--per_iter_skip 1 needs --per_iter_timing 1");
    check_refused("-I 1 -n 5 -K 5", "--per_iter_skip 5 leaves nothing of 5 iterations");
    check_refused("-I 1 -K 20", "--per_iter_skip 20 leaves nothing of 20 iterations");
    for (const char *option : {"-G 1", "--cudagraph 1"}) check_refused(option, "CUDA graphs");
    for (const char *option : {"-D 2", "--device_implementation 2"})
        check_refused(option, "device-side");
    check_refused("-R 2", "no number from 0 to 1");
    check_refused("-R 1 --buffers malloc", "qcclMemAlloc");
    for (const char *option : {"-g 2", "--ngpus 8"}) check_refused(option, "--ranks");
    check_refused("-o mulsun", "mulsum");
    check_refused("--no_such_option", "no_such_option");
}

static void buffers_are_registered_where_they_can_be() {
    CHECK(accepted("").registers());
    CHECK(accepted("-R 1").registers());
    CHECK(!accepted("--local_register 0").registers());
    CHECK(!accepted("--buffers malloc").registers());
    CHECK(!accepted("-R 0 --buffers malloc").registers());
}

static void values_arrive() {
    const PerfArguments a =
        accepted("-b 4K -e 2M -f 2 -n 5 -w 2 -m 3 -N 4 -c 6 -o avg -d half -r 1 -z 1 -T 9 "
                 "-C 1 -a 0 -S 1 -J out.json -M 1 -u 3 -I 1 -K 4 --ranks 4 --seed 77 --json - "
                 "--buffers malloc");
    CHECK_EQ(a.min_bytes, 4096U);
    CHECK_EQ(a.max_bytes, 2U << 20);
    CHECK(a.names_sizes);
    CHECK_EQ(a.step_factor, 2U);
    CHECK_EQ(a.iterations.value(), 5U);
    CHECK_EQ(a.warmup_iterations, 2U);
    CHECK_EQ(a.aggregated.value(), 3U);
    CHECK_EQ(a.cycles, 4U);
    CHECK_EQ(a.checks, 6U);
    CHECK(a.ops == std::vector{RedOp::avg});
    CHECK(a.types == std::vector{DataType::float16});
    CHECK_EQ(a.root.value(), 1U);
    CHECK(a.blocking == Blocking::with_barrier);
    CHECK(a.timeout_s == 9);
    CHECK(a.reports_cpu_time && a.reports_timestamps && a.reports_memory && a.reports_iterations);
    CHECK_EQ(a.skipped_iterations, 4U);
    CHECK(a.average == Average::rank_0);
    CHECK(accepted("-z 3").blocking == Blocking::with_barrier);
    CHECK(accepted("-z 2").blocking == Blocking::without_barrier);
    CHECK_EQ(a.nccl_json_file, std::string("out.json"));
    CHECK_EQ(a.unaligned_elements, 3U);
    CHECK_EQ(a.ranks, 4U);
    CHECK_EQ(a.seed, 77U);
    CHECK_EQ(a.json_file, std::string("-"));
    CHECK(a.buffers == Buffers::ordinary);
    CHECK(!accepted("-r all").root);
    CHECK_EQ(accepted("-b 0.5K -e 1.5M").min_bytes, 512U);
    CHECK_EQ(accepted("-b 0.5K -e 1.5M").max_bytes, 3U << 19);
    CHECK(accepted("--threads 3").launch == Launch::threads);
    CHECK_EQ(accepted("-t 5").ranks, 5U);
}

static void lists_arrive() {
    const PerfArguments a =
        accepted("--codec none,int4:block=64,round=stochastic,minmax:bits=3 --algo auto,ring");
    CHECK_EQ(a.codecs.size(), 3U);
    CHECK_EQ(a.codecs[1].bucket, 64U);
    CHECK(a.codecs[1].rounding == Rounding::stochastic);
    CHECK_EQ(a.codecs[2].bits, 3U);
    CHECK(a.algorithms == std::vector<std::string>({"auto", "ring"}));
    CHECK(accepted("--algo tree,shape=double,ring,tree:shape=binomial").algorithms ==
          std::vector<std::string>({"tree:shape=double", "ring", "tree"}));
}

static void what_is_unknown_is_refused_with_what_is_possible() {
    check_refused("--codec int9", "int8");
    check_refused("--codec int8,", "possible");
    check_refused("--algo star",
                  "possible are direct, ring, halving, tree, hierarchy, oneshot, doubling, "
                  "pairwise, bruck, chain, neighbour, auto");
    check_refused("--algo ring,", "possible are direct");
    check_refused("--algo tree:shape=round", "shape is \"round\"; possible are binomial, double");
    check_refused("-o xor", "possible are sum, prod, max, min, avg, bitand, ");
    check_refused("-d quad", "bfloat16");
    check_refused("--baseline nccl", "mpi");
    check_refused("--buffers cuda", "shared, malloc");
}

static void misspelt_options_are_answered_with_those_meant() {
    check_refused("--codecs int8", "unknown option --codecs; did you mean --codec?\n");
    check_refused("--algorithm=ring",
                  "unknown option --algorithm; --help lists those that there are");
    check_refused("--min-bytes=4", "unknown option --min-bytes; did you mean --minbytes?\n");
    check_refused("--" + std::string(5000, 'x'), "--help");
    check_refused("-Z", "unknown option -Z; --help");
    check_refused("--json", "--json needs a value\n");
    check_refused("--json --codec int8", "--json: needs a value; '--codec' is an option\n");
    check_refused("surplus", "'surplus' is not expected\n");
}

static void help_is_an_answer() {
    const auto answered = ask("--help");
    CHECK_EQ(std::get<Answer>(answered.parsed).status, 0);
    CHECK(std::get<Answer>(answered.parsed).text.find("--codec") != std::string::npos);
}

static void the_least_bandwidth_is_a_number() {
    CHECK_EQ(*parse_least_busbw("12.5"), 12.5);
    CHECK_EQ(*parse_least_busbw("0"), 0.0);
    CHECK_EQ(*parse_least_busbw("1e3"), 1000.0);
    CHECK_EQ(*parse_least_busbw("-1"), -1.0);
    for (const char *text : {"fast", "1G", "", "nan", "inf", " 1"}) {
        const auto refused = parse_least_busbw(text);
        CHECK(!refused && refused.error().code == Code::invalid_argument);
        CHECK(std::string(refused.error().text).starts_with("NCCL_TESTS_MIN_BW="));
    }
}

static void nonsense_is_refused() {
    for (const char *size : {"-b 8x", "-e -1", "-e 1.5.1K", "-i K", "-b 99999999999999999999"})
        check_refused(size, "is no size");
    for (const char *count : {"--ranks 0", "--ranks -3", "--ranks two", "-t 0", "-n 0", "-a 4",
                              "-C 2", "-z 4", "-m 0", "--ranks 99999", "--seed x"})
        check_refused(count, "is no number");
    check_refused("-p 2", "is not 0 or 1");
    check_refused("-r nobody", "is no rank");
    check_refused("-b 2M -e 1M", "above");
    check_refused("-i 0", "no next size");
    check_refused("-b 0 -f 2", "no next size");
    check_refused("--ranks 2 -t 2", "excludes");
    check_refused("-r 2", "none of the 2 ranks");
    check_refused("-N 0 --json -", "name a file");
    check_refused("-b", "minbytes");
    check_refused("surplus", "surplus");
}

static void mpi_has_started_the_ranks_or_nobody_has() {
    check_refused("--baseline mpi", "mpirun");
    const Started mpirun{.by_mpi = true, .by_environment = ""};
    const Answered under = ask("--baseline mpi", {Collective::all_reduce}, mpirun);
    CHECK(under.accepted().launch == Launch::mpi);
    CHECK_EQ(under.accepted().baseline, std::string("mpi"));
    CHECK(ask("-n 3", {Collective::all_reduce}, mpirun).accepted().launch == Launch::mpi);
    check_refused(ask("--ranks 2", {Collective::all_reduce}, mpirun), "mpirun");
    check_refused(ask("-t 2", {Collective::all_reduce}, mpirun), "mpirun");
}

static void variables_have_started_the_ranks() {
    const Started torchrun{.by_mpi = false, .by_environment = "RANK and WORLD_SIZE"};
    CHECK(ask("-r 3", {Collective::broadcast}, torchrun).accepted().launch == Launch::environment);
    check_refused(ask("--ranks 2", {Collective::all_reduce}, torchrun),
                  "--ranks: is not possible where RANK and WORLD_SIZE are set");
    check_refused(ask("-t 2", {Collective::all_reduce}, torchrun), "RANK and WORLD_SIZE");
    check_refused(ask("--baseline mpi", {Collective::all_reduce}, torchrun), "mpirun");
    const Started hydra{.by_mpi = true, .by_environment = "PMI_RANK and PMI_SIZE"};
    CHECK(ask("-n 3", {Collective::all_reduce}, hydra).accepted().launch == Launch::environment);
    CHECK(ask("--baseline mpi", {Collective::all_reduce}, hydra).accepted().launch == Launch::mpi);
    check_refused(ask("--ranks 2", {Collective::all_reduce}, hydra), "PMI_RANK and PMI_SIZE");
}

static void collectives_have_several_names() {
    CHECK(collective_called("all_reduce") == Collective::all_reduce);
    CHECK(collective_called("allreduce") == Collective::all_reduce);
    CHECK(collective_called("all_reduce_perf") == Collective::all_reduce);
    CHECK(collective_called("reduce_scatter_perf") == Collective::reduce_scatter);
    CHECK(collective_called("allgather") == Collective::all_gather);
    CHECK(collective_called("broadcast") == Collective::broadcast);
    CHECK(!collective_called("barrier"));
    CHECK(!collective_called("qccl-perf"));
    CHECK(!collective_called(""));
}

static void messages_have_names_too() {
    const CallKind ring{Collective::send, Pattern::sendrecv};
    CHECK(kind_called("sendrecv_perf") == ring);
    CHECK_EQ(std::string(name(ring)), "sendrecv");
    CHECK(kind_called("hypercube") == (CallKind{Collective::send, Pattern::hypercube}));
    CHECK(kind_called("send") == CallKind{Collective::send});
    CHECK(!kind_called("qccl-perf"));
    CHECK(kind_names().back() == "hypercube");
    for (const uint32_t ranks : {1U, 2U, 64U}) CHECK(check_pattern(Pattern::hypercube, ranks));
    for (const uint32_t ranks : {3U, 6U, 65U}) CHECK(!check_pattern(Pattern::hypercube, ranks));
    CHECK(check_pattern(Pattern::sendrecv, 3));
    check_refused(ask("--group 2", {Collective::send, Pattern::hypercube}), "cannot be one group");
    CHECK_EQ(ask("--group 2", ring).accepted().group, 2U);
}

static void v_forms_have_names_and_skews() {
    const CallKind exchange{Collective::all_to_all, Pattern::v_form};
    for (const char *name :
         {"all_to_all_v", "alltoallv", "alltoallv_perf", "all_to_allv", "all_to_all_v_perf"})
        CHECK(kind_called(name) == exchange);
    CHECK_EQ(std::string(name(exchange)), "all_to_all_v");
    CHECK(exchange.called() == all_to_all_v);
    CHECK(CallKind{Collective::gather}.called() == Collective::gather);
    for (const char *name : {"v", "all_reduce_v", "sendrecvv", "gather_vv"})
        CHECK(!kind_called(name));
    for (const VForm &form : v_forms)
        CHECK(kind_called(form.name) == (CallKind{form.of, Pattern::v_form}));
    CHECK(!ask("", exchange).accepted().skew);
    CHECK(ask("--skew one", exchange).accepted().skew == Skew::one);
    check_refused(ask("--skew steep", exchange), "possible are equal, linear, one, random");
    check_refused("--skew one", "all_reduce has no parts with counts of their own");
    CHECK(check_call_codec(*parse_codec("int8"), exchange, DataType::float32, RedOp::sum));
    const Codec guarded = *parse_codec("int8:guard=nmse:1e-3");
    CHECK(!check_call_codec(guarded, exchange, DataType::float32, RedOp::sum));
}

// A broadcast combines nothing, so there are no operations to sweep.
static void a_copy_has_no_operations() {
    CHECK_EQ(ask("-o all", {Collective::broadcast}).accepted().ops.size(), 1U);
    CHECK_EQ(ask("-o all", {Collective::all_reduce}).accepted().ops.size(), all_ops.size());
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(the_defaults_are_those_of_nccl_tests),
        QTEST(every_option_is_known_by_both_names),
        QTEST(of_an_option_that_is_repeated_the_last_counts),
        QTEST(the_beginning_of_a_long_name_is_enough_where_it_is_clear),
        QTEST(the_least_bandwidth_is_a_number),
        QTEST(devices_are_dealt_out_to_the_ranks),
        QTEST(what_is_of_the_host_is_refused_of_gpus),
        QTEST(what_means_nothing_is_refused_with_the_reason),
        QTEST(buffers_are_registered_where_they_can_be),
        QTEST(values_arrive),
        QTEST(lists_arrive),
        QTEST(what_is_unknown_is_refused_with_what_is_possible),
        QTEST(misspelt_options_are_answered_with_those_meant),
        QTEST(help_is_an_answer),
        QTEST(nonsense_is_refused),
        QTEST(mpi_has_started_the_ranks_or_nobody_has),
        QTEST(variables_have_started_the_ranks),
        QTEST(collectives_have_several_names),
        QTEST(messages_have_names_too),
        QTEST(v_forms_have_names_and_skews),
        QTEST(a_copy_has_no_operations),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
