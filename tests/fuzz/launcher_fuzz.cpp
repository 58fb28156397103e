// Fuzzes bootstrap/launcher with hostile environments, one variable a line. Whatever a launcher or
// another program has set, a rank gets a complete LauncherInfo or a refusal with a sentence, and
// find_launcher and read_launcher_info agree.
#include "bootstrap/rendezvous_state.hpp"
#include "bootstrap/launcher.hpp"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

using namespace qccl;

static void require(bool condition, const char *what) {
    if (condition) return;
    fprintf(stderr, "%s\n", what);
    abort();
}

static void check_placement(const LauncherInfo &placement, std::optional<uint16_t> port) {
    require(!placement.launcher.empty() && placement.rank < placement.size,
            "a rank that is none of its job's");
    require(placement.size <= most_ranks, "a job that is too large");
    require(!port || placement.port == *port, "another port than was chosen");
    const bool is_alone = placement.size == 1, is_managed = placement.manager >= 0;
    require(is_alone || is_managed || !placement.host.empty(), "a meeting without a place");
    require(is_alone || is_managed || placement.port != 0, "a meeting without a port");
    require(is_alone || is_managed || !placement.host_variable.empty(),
            "a place that nobody has named");
}

static void check_node_list(const std::string &list) {
    const auto first = first_of_node_list(list);
    if (!first) return;
    require(!first->empty() && first->size() <= list.size(), "a node that is not in its list");
    require(first->find_first_of("[],") == std::string::npos, "a list for a node");
    require(first_of_node_list(*first) == first, "a node that is no list of itself");
    require(first_of_node_list(*first + ",other[1-3]") == first, "another's node");
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    if (bytes == 0) return 0;
    const auto port = data[0] % 2 == 0 ? std::nullopt : std::optional<uint16_t>(4000 + data[0]);
    std::vector<std::string> entries(1);
    for (size_t i = 1; i < bytes; i++) {
        if (data[i] == '\n' || data[i] == '\0')
            entries.emplace_back();
        else
            entries.back() += static_cast<char>(data[i]);
    }
    std::vector<const char *> environment;
    for (const std::string &entry : entries) environment.push_back(entry.c_str());
    environment.push_back(nullptr);

    const auto found = find_launcher(environment.data());
    const auto placement = read_launcher_info(environment.data(), port);
    if (placement) {
        check_placement(*placement, port);
        require(found && *found && (*found)->rank == placement->rank &&
                    (*found)->size == placement->size,
                "two answers to one question");
    } else {
        require(placement.error().code == Code::invalid_argument &&
                    placement.error().text[0] != '\0',
                "a refusal without a sentence");
    }
    for (const std::string &entry : entries)
        check_node_list(entry.substr(std::min(entry.find('=') + 1, entry.size())));
    return 0;
}
