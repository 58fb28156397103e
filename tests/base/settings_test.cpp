// Tests base/settings: the values that the environment gives, where each value comes from, and the
// errors and warnings about wrong values and names.
#include "tests/kit/qtest.hpp"

#include "base/settings.hpp"

#include <set>

using namespace qccl;
using namespace std::chrono_literals;

static Result<Settings> read(std::vector<const char *> environment) {
    environment.push_back(nullptr);
    return read_settings(environment.data());
}

static const SettingValue &value(const Settings &settings, std::string_view name) {
    for (size_t i = 0; i < settings_table().size(); i++)
        if (settings_table()[i].name == name) return settings.values[i];
    throw qtest::Failure{"no row " + std::string(name)};
}

static void an_empty_environment_gives_the_built_in_values() {
    const auto settings = read({});
    CHECK_OK(settings);
    CHECK_EQ(settings->codec, "none");
    CHECK(!settings->algorithm && !settings->tier && !settings->segment_bytes && !settings->lanes);
    CHECK(settings->debug == LogLevel::warn);
    CHECK_EQ(settings->debug_file, "stderr");
    CHECK(settings->peer_timeout == 30s && settings->timeout == 1800s);
    CHECK(!settings->checksum && settings->inject.empty() && settings->warnings.empty());
    CHECK_EQ(settings->values.size(), settings_table().size());
    for (const SettingValue &each : settings->values) CHECK(each.origin == Origin::built_in);
}

static void every_setting_reaches_its_field() {
    const auto settings = read({"HOME=/root",
                                "QCCL_CODEC=minmax:bits=4,bucket=64",
                                "QCCL_ALGO=ring",
                                "QCCL_PLAN_FILE=/plan",
                                "QCCL_DEBUG=TRACE",
                                "QCCL_DEBUG_FILE=/tmp/%h.%p",
                                "QCCL_RECORD=/run/records",
                                "QCCL_TRACE=t-%r.json",
                                "QCCL_RECORD_CALLS=/run/calls",
                                "QCCL_AUDIT=int8,int4",
                                "QCCL_AUDIT_FILE=/run/audit",
                                "QCCL_PEER_TIMEOUT=500ms",
                                "QCCL_TIMEOUT=0",
                                "QCCL_CHECKSUM=1",
                                "QCCL_REPRODUCIBLE=1",
                                "QCCL_TIER=avx2,baseline",
                                "QCCL_SEGMENT=256K",
                                "QCCL_ARENA=1G",
                                "QCCL_LANES=4",
                                "QCCL_ONESHOT_MAX=0",
                                "QCCL_FUSION=1M",
                                "QCCL_CALIBRATION=/figures",
                                "QCCL_LINK_LATENCY=5us",
                                "QCCL_LINK_RATE=2.5gbit",
                                "QCCL_RACK_RATE=5GB/s",
                                "QCCL_SOCKET_IFNAME=eth1",
                                "QCCL_HOSTID=host7",
                                "QCCL_NODE=left",
                                "QCCL_RACK=rack7",
                                "QCCL_UCX_TLS=tcp,self",
                                "QCCL_UCX_DEVICES=eth2",
                                "QCCL_PORT=4711",
                                "QCCL_SECRET_FILE=/s",
                                "QCCL_SPIN=50us",
                                "QCCL_PROGRESS_CPU=0",
                                "QCCL_INJECT=rank=3,call=100,kill;rank=1,delay=5s"});
    CHECK_OK(settings);
    CHECK_EQ(settings->codec, "minmax:bits=4,bucket=64");
    CHECK(settings->algorithm == "ring" && settings->tier == "avx2,baseline");
    CHECK(settings->debug == LogLevel::trace);
    CHECK_EQ(settings->debug_file, "/tmp/%h.%p");
    CHECK(settings->record == "/run/records" && settings->trace == "t-%r.json");
    CHECK(settings->record_calls == "/run/calls" && settings->calibration == "/figures");
    CHECK(settings->audit == "int8,int4" && settings->audit_file == "/run/audit");
    CHECK(settings->peer_timeout == 500ms && settings->timeout == 0s && settings->spin == 50us);
    CHECK(settings->checksum && settings->progress_cpu == 0U && settings->lanes == 4U);
    CHECK(settings->segment_bytes == 256U << 10 && settings->arena_bytes == 1U << 30);
    CHECK(settings->oneshot_max_bytes == 0U && settings->link_latency == 5us);
    CHECK(settings->socket_interface == "eth1" && settings->host_id == "host7");
    CHECK(settings->plan_file == "/plan" && settings->reproducible && settings->port == 4711U);
    CHECK(settings->node == "left" && settings->rack == "rack7");
    CHECK(settings->link_rate == 312'500'000U && settings->rack_rate == 5'000'000'000U);
    CHECK(settings->secret_file == "/s" && settings->fusion_bytes == 1U << 20);
    CHECK(settings->ucx_transports == "tcp,self" && settings->ucx_devices == "eth2");
    CHECK_EQ(settings->inject.size(), size_t{2});
    // A setting that is missing in the environment above has no test.
    for (const SettingValue &each : settings->values) CHECK(each.origin == Origin::environment);
    CHECK(settings->warnings.empty());
}

static void who_said_it_is_kept() {
    const auto settings = read({"QCCL_CODEC=int8", "QCCL_ALGO=", "QCCL_CODEC=int4"});
    CHECK_OK(settings);
    CHECK_EQ(value(*settings, "QCCL_CODEC").text, "int8"); // the first one counts, as for getenv
    CHECK(value(*settings, "QCCL_CODEC").origin == Origin::environment);
    CHECK_EQ(value(*settings, "QCCL_ALGO").text, "auto"); // set and empty is not set
    CHECK(value(*settings, "QCCL_ALGO").origin == Origin::built_in);
    CHECK(!settings->algorithm);
}

static void a_wrong_value_is_refused_by_name() {
    for (const char *bad : {"QCCL_DEBUG=loud",
                            "QCCL_PEER_TIMEOUT=0",
                            "QCCL_PEER_TIMEOUT=soon",
                            "QCCL_TIMEOUT=-1",
                            "QCCL_CHECKSUM=yes",
                            "QCCL_SEGMENT=0",
                            "QCCL_ARENA=big",
                            "QCCL_LANES=0",
                            "QCCL_LANES=4K",
                            "QCCL_ONESHOT_MAX=1.5.5K",
                            "QCCL_FUSION=auto",
                            "QCCL_SPIN=often",
                            "QCCL_LINK_LATENCY=0",
                            "QCCL_LINK_LATENCY=5",
                            "QCCL_LINK_RATE=10",
                            "QCCL_LINK_RATE=0gbit",
                            "QCCL_PROGRESS_CPU=-1",
                            "QCCL_INJECT=rank=3",
                            "QCCL_PORT=0",
                            "QCCL_PORT=65536"}) {
        const auto settings = read({bad});
        CHECK(!settings && settings.error().code == Code::invalid_argument);
        const std::string entry = bad;
        CHECK(std::string(settings.error().text).starts_with(entry.substr(0, entry.find('='))));
    }
    CHECK_EQ(std::string(read({"QCCL_CHECKSUM=maybe"}).error().text),
             "QCCL_CHECKSUM=maybe: expected 0 or 1");
    CHECK_EQ(std::string(read({"QCCL_TIMEOUT=soon"}).error().text),
             "QCCL_TIMEOUT=soon: expected a time such as 1800 or 30m; 0: for ever");
}

static void an_unknown_name_is_warned_about() {
    const auto settings =
        read({"QCCL_CODAC=int8", "QCCL_DEBUGFILE=x", "QCCLX=1", "NCCL_ALGO=Ring",
              "QCCL_peer_timeout=3", "QCCL_", "QCCL_TIMEOUT=5", "QCCL_LIBRARY=libqccl.so.0"});
    CHECK_OK(settings);
    CHECK_EQ(settings->warnings.size(), size_t{4});
    CHECK_EQ(settings->warnings[0],
             "QCCL_CODAC is not a setting of QCCL; did you mean QCCL_CODEC?");
    CHECK_EQ(settings->warnings[1],
             "QCCL_DEBUGFILE is not a setting of QCCL; did you mean QCCL_DEBUG_FILE?");
    CHECK_EQ(settings->warnings[2],
             "QCCL_peer_timeout is not a setting of QCCL; did you mean QCCL_PEER_TIMEOUT?");
    CHECK_EQ(settings->codec, "none");
    CHECK_EQ(read({"QCCL_FOO=1"})->warnings[0],
             "QCCL_FOO is not a setting of QCCL; qccl-info settings lists those that there are");
    const std::string endless = "QCCL_" + std::string(100000, 'x');
    CHECK(read({endless.c_str()})->warnings[0].size() < 200);
}

static void the_table_is_sound() {
    std::set<std::string_view> names;
    for (const SettingRow &row : settings_table()) {
        CHECK(names.insert(row.name).second);
        CHECK(std::string_view(row.name).starts_with("QCCL_"));
        CHECK(row.help[0] != 0 && row.type[0] != 0);
    }
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(an_empty_environment_gives_the_built_in_values),
        QTEST(every_setting_reaches_its_field),
        QTEST(who_said_it_is_kept),
        QTEST(a_wrong_value_is_refused_by_name),
        QTEST(an_unknown_name_is_warned_about),
        QTEST(the_table_is_sound),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
