// Reads the file and passes its content to the parser that fits. Deals ranks out over GPUs or over
// NUMA nodes.
#include "topology/formats/read_topology.hpp"

#include "base/system.hpp"
#include "topology/graph.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>

namespace qccl {

// ---- Reading

namespace {

Error refuse(std::string_view source, const std::string &sentence) {
    return invalid_argument("%.200s %.250s", std::string(source).c_str(), sentence.c_str());
}

Result<std::string> read_file(const std::string &path) {
    const auto fail = [&] { return refuse(path, "cannot be read: " + describe_errno(errno)); };
    const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!file.is_open()) return fail();
    struct stat status = {};
    if (fstat(file.number(), &status) != 0) return fail();
    if (S_ISDIR(status.st_mode)) return refuse(path, "is a folder; expected a file");
    if (!S_ISREG(status.st_mode)) return refuse(path, "is no regular file");
    const Error too_large = refuse(path, "is larger than " + std::to_string(most_graph_text_bytes) +
                                             " bytes; no topology is");
    if (static_cast<size_t>(status.st_size) > most_graph_text_bytes) return too_large;
    std::string content;
    std::vector<char> piece(65536);
    while (content.size() <= most_graph_text_bytes) { // the file may grow
        const ssize_t bytes = read(file.number(), piece.data(), piece.size());
        if (bytes < 0 && errno == EINTR) continue;
        if (bytes < 0) return fail();
        if (bytes == 0) return content;
        content.append(piece.data(), static_cast<size_t>(bytes));
    }
    return too_large;
}

bool is_file(const std::string &path) {
    struct stat status = {};
    return stat(path.c_str(), &status) == 0;
}

} // namespace

Result<Graph> parse_topology(std::string_view content, std::string_view source) {
    // Compares up to the first space, which later versions of the text form have as well.
    if (content.starts_with(graph_text_head.substr(0, graph_text_head.find(' '))))
        return parse_graph_text(content, source);
    const size_t nccl = content.find("<system"), hwloc = content.find("<topology");
    if (hwloc < nccl) return parse_hwloc_xml(content, source);
    if (nccl != content.npos) return parse_nccl_xml(content, source);
    return refuse(source, "holds no topology: expected XML of hwloc (<topology>), NCCL or RCCL "
                          "(<system>), or a text that begins with \"" +
                              std::string(graph_text_head) + "\"");
}

Result<Graph> read_topology(const std::string &file_or_text) {
    if (is_file(file_or_text)) {
        QCCL_TRY(const std::string content, read_file(file_or_text));
        return parse_topology(content, file_or_text);
    }
    Result<Graph> graph = parse_synthetic(file_or_text);
    // Text with neither brackets nor blanks is meant as the name of a file.
    if (!graph && file_or_text.find_first_of("( ") == file_or_text.npos)
        return refuse(file_or_text, "is no file, and no topology such as "
                                    "\"4 x node(8 gpu nvlink:450) net:50\"");
    return graph;
}

// ---- Where the ranks are

namespace {

// Divides `count` things into `parts` equal parts and returns the size of part `i`; the first parts
// get one more.
size_t share(size_t count, size_t parts, size_t i) { return count / parts + (i < count % parts); }

} // namespace

Result<std::vector<uint32_t>> rank_places(const Graph &graph, uint32_t ranks) {
    std::vector<uint32_t> gpus = graph.of_kind(VertexKind::gpu);
    if (ranks > gpus.size() && !gpus.empty())
        return invalid_argument("the topology has %zu GPUs, too few for %u ranks: each has its own",
                                gpus.size(), ranks);
    if (!gpus.empty()) {
        std::ranges::stable_sort(gpus, {}, [&](uint32_t gpu) {
            return std::pair(graph.machine_of(gpu), graph.vertex(gpu).number);
        });
        if (ranks != 0) gpus.resize(ranks);
        return gpus;
    }
    const std::vector<uint32_t> machines = graph.of_kind(VertexKind::machine);
    std::vector<std::vector<uint32_t>> numas(machines.size()); // by machine
    for (const uint32_t numa : graph.of_kind(VertexKind::numa)) {
        const auto place = std::ranges::lower_bound(machines, graph.machine_of(numa));
        numas[static_cast<size_t>(place - machines.begin())].push_back(numa);
    }
    std::vector<uint32_t> places;
    for (size_t i = 0; i < machines.size(); i++) {
        if (numas[i].empty()) numas[i] = {machines[i]};
        const size_t here = ranks == 0 ? numas[i].size() : share(ranks, machines.size(), i);
        for (size_t j = 0; j < numas[i].size(); j++)
            places.insert(places.end(), share(here, numas[i].size(), j), numas[i][j]);
    }
    return places;
}

} // namespace qccl
