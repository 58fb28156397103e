// The table of launchers, and how each of them says where rank 0 listens. Checks a secret's file,
// reads it and hashes its content. Sends PMI-1 requests over the descriptor that the process
// manager has left open.
#include "bootstrap/launcher.hpp"

#include "base/system.hpp"
#include "base/text.hpp"
#include "bootstrap/rendezvous_state.hpp"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <sodium.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

namespace qccl {

// ---- Launchers' variables

namespace {

class Variables {
public:
    explicit Variables(const char *const *environment) : environment_(environment) {}

    // Returns the first entry if there are several, as getenv does.
    std::string get(std::string_view name) const {
        for (const char *const *entry = environment_; *entry; entry++) {
            const std::string_view text = *entry;
            if (text.starts_with(name) && text.substr(name.size()).starts_with('='))
                return std::string(text.substr(name.size() + 1));
        }
        return "";
    }
    bool has(std::string_view name) const { return !get(name).empty(); }

    Result<uint64_t> number(const char *name, uint64_t most) const {
        const std::string text = get(name);
        const auto value = parse_count(text);
        if (!value || *value > most)
            return invalid_argument("%s=%.40s is no number from 0 to %llu", name, text.c_str(),
                                    static_cast<unsigned long long>(most));
        return *value;
    }

private:
    const char *const *environment_;
};

// Below the ports that systems choose for clients.
constexpr uint16_t first_derived_port = 16384, derived_ports = 16384;
constexpr uint64_t largest_port = 65535;

// FNV-1a makes it unlikely that two jobs on one machine get the same port. No secret depends on it.
uint16_t port_of(std::string_view job) {
    uint32_t hash = 2166136261;
    for (const char c : job) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619;
    return static_cast<uint16_t>(first_derived_port + (hash ^ hash >> 16) % derived_ports);
}

struct LauncherRow {
    std::string_view name;
    const char *rank;
    const char *size;
    Done (*find_meeting)(const Variables &variables, LauncherInfo &info);
};

// Keeps a port that the user has chosen. Otherwise takes the port after MASTER_PORT, because the
// launcher's own agent or the program's framework holds MASTER_PORT. Otherwise leaves 0.
Done take_port(const Variables &variables, LauncherInfo &info) {
    if (info.port != 0 || !variables.has("MASTER_PORT")) return {};
    QCCL_TRY(const uint64_t master, variables.number("MASTER_PORT", largest_port - 1));
    info.port = static_cast<uint16_t>(master + 1);
    return {};
}

bool take_master(const Variables &variables, LauncherInfo &info) {
    info.host = variables.get("MASTER_ADDR");
    info.host_variable = "MASTER_ADDR";
    return !info.host.empty();
}

void stay_on_this_host(LauncherInfo &info) {
    info.host = "localhost";
    info.host_variable = info.size_variable;
}

Done take_torchrun(const Variables &variables, LauncherInfo &info) {
    info.job = variables.get("TORCHELASTIC_RUN_ID");
    if (!take_master(variables, info))
        return invalid_argument(
            "RANK and WORLD_SIZE are set, but not MASTER_ADDR: the address of rank 0");
    QCCL_TRY(take_port(variables, info));
    if (info.port == 0)
        return invalid_argument(
            "RANK, WORLD_SIZE and MASTER_ADDR are set, but neither QCCL_PORT nor "
            "MASTER_PORT: where rank 0 can be met");
    return {};
}

Done meet_through_manager(const Variables &variables, LauncherInfo &info) {
    if (!variables.has("PMI_FD"))
        return invalid_argument("PMI_RANK and PMI_SIZE are set, but not PMI_FD: "
                                "the process manager's wire");
    QCCL_TRY(const uint64_t descriptor, variables.number("PMI_FD", INT32_MAX));
    info.manager = static_cast<int>(descriptor);
    return {};
}

Done meet_under_open_mpi(const Variables &variables, LauncherInfo &info) {
    info.job = "open mpi " + variables.get("PMIX_NAMESPACE");
    const bool is_one_host =
        variables.get("OMPI_COMM_WORLD_LOCAL_SIZE") == variables.get("OMPI_COMM_WORLD_SIZE");
    if (!take_master(variables, info)) {
        if (!is_one_host)
            return invalid_argument(
                "mpirun has started ranks on several hosts, and MASTER_ADDR is not "
                "set: the address of rank 0 (mpirun -x MASTER_ADDR=... hands it on)");
        stay_on_this_host(info);
    }
    QCCL_TRY(take_port(variables, info));
    if (info.port == 0) info.port = port_of(info.job);
    return {};
}

bool is_on_one_node(const Variables &variables) {
    for (const char *name : {"SLURM_STEP_NUM_NODES", "SLURM_NNODES"})
        if (variables.has(name)) return variables.get(name) == "1";
    return false;
}

Done meet_on_first_node(const Variables &variables, LauncherInfo &info) {
    info.job = "slurm " + variables.get("SLURM_JOB_ID") + "." + variables.get("SLURM_STEP_ID");
    QCCL_TRY(take_port(variables, info));
    if (info.port == 0) info.port = port_of(info.job);
    if (take_master(variables, info)) return {};
    if (is_on_one_node(variables)) {
        stay_on_this_host(info);
        return {};
    }
    for (const char *name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}) {
        if (!variables.has(name)) continue;
        const std::string list = variables.get(name);
        const auto first = first_of_node_list(list);
        if (!first) return invalid_argument("%s=%.60s is no list of nodes", name, list.c_str());
        info.host = *first;
        info.host_variable = name;
        return {};
    }
    info.host = variables.get("SLURM_LAUNCH_NODE_IPADDR");
    info.host_variable = "SLURM_LAUNCH_NODE_IPADDR";
    if (!info.host.empty()) return {};
    return invalid_argument(
        "SLURM_PROCID and SLURM_NTASKS are set, but none of SLURM_STEP_NODELIST, "
        "SLURM_JOB_NODELIST, SLURM_LAUNCH_NODE_IPADDR and MASTER_ADDR: where rank 0 is");
}

// The launcher nearest to the process comes first: mpirun may have started torchrun, and srun
// mpirun, and the outer launcher's variables are then still set.
constexpr LauncherRow table[] = {
    {"torchrun", "RANK", "WORLD_SIZE", take_torchrun},
    {"hydra", "PMI_RANK", "PMI_SIZE", meet_through_manager},
    {open_mpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", meet_under_open_mpi},
    {"srun", "SLURM_PROCID", "SLURM_NTASKS", meet_on_first_node},
};

const LauncherRow *row_of(const Variables &variables) {
    for (const LauncherRow &row : table)
        if (variables.has(row.rank) && variables.has(row.size)) return &row;
    return nullptr;
}

Result<LauncherInfo> who_is_who(const LauncherRow &row, const Variables &variables) {
    QCCL_TRY(const uint64_t size, variables.number(row.size, most_ranks));
    QCCL_TRY(const uint64_t rank, variables.number(row.rank, most_ranks));
    if (size == 0) return invalid_argument("%s=0: a job has at least one rank", row.size);
    if (rank >= size)
        return invalid_argument("%s=%llu cannot be with %s=%llu: ranks count from 0 to %llu",
                                row.rank, static_cast<unsigned long long>(rank), row.size,
                                static_cast<unsigned long long>(size),
                                static_cast<unsigned long long>(size - 1))
            .compared(static_cast<int64_t>(size), static_cast<int64_t>(rank));
    LauncherInfo info;
    info.launcher = row.name;
    info.rank_variable = row.rank;
    info.size_variable = row.size;
    info.rank = static_cast<uint32_t>(rank);
    info.size = static_cast<uint32_t>(size);
    return info;
}

Error nobody_said(const Variables &variables) {
    std::string possible;
    for (const LauncherRow &row : table) {
        const bool has_rank = variables.has(row.rank);
        if (has_rank || variables.has(row.size))
            return invalid_argument("%s is set, but not %s", has_rank ? row.rank : row.size,
                                    has_rank ? row.size : row.rank);
        possible.append(possible.empty() ? "" : "; ").append(row.rank).append(" and ");
        possible.append(row.size);
    }
    return invalid_argument("no launcher has said which rank this is: start the program with "
                            "torchrun, mpirun or srun, or set RANK, WORLD_SIZE, MASTER_ADDR and "
                            "QCCL_PORT in each process. Launchers say it by one of: %s",
                            possible.c_str());
}

} // namespace

Result<std::optional<LauncherInfo>> find_launcher(const char *const *environment) {
    const Variables variables(environment);
    const LauncherRow *const row = row_of(variables);
    if (!row) return std::optional<LauncherInfo>();
    QCCL_TRY(const LauncherInfo info, who_is_who(*row, variables));
    return std::optional(info);
}

Result<LauncherInfo> read_launcher_info(const char *const *environment,
                                        std::optional<uint16_t> port) {
    const Variables variables(environment);
    const LauncherRow *const row = row_of(variables);
    if (!row) return nobody_said(variables);
    QCCL_TRY(LauncherInfo info, who_is_who(*row, variables));
    info.port = port.value_or(0);
    // A single rank has no other rank to meet.
    if (info.size > 1) QCCL_TRY(row->find_meeting(variables, info));
    return info;
}

std::optional<std::string> first_of_node_list(const std::string &list) {
    std::string first;
    for (size_t at = 0; at < list.size() && list[at] != ',';) {
        if (list[at] == ']') return std::nullopt;
        if (list[at] != '[') {
            first += list[at++];
            continue;
        }
        const size_t end = list.find(']', at);
        const size_t number_end = list.find_first_not_of("0123456789", at + 1);
        if (end == std::string::npos || number_end == at + 1) return std::nullopt;
        if (std::string_view("-,]").find(list[number_end]) == std::string_view::npos)
            return std::nullopt;
        first += list.substr(at + 1, number_end - at - 1);
        at = end + 1;
    }
    return first.empty() ? std::nullopt : std::optional(first);
}

// ---- Secret file

static constexpr off_t fewest_bytes = 16, most_bytes = 64 << 10;

Result<Secret> read_secret_file(const std::string &path) {
    const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat about {};
    if (!file.is_open() || fstat(file.number(), &about) != 0)
        return invalid_argument("cannot read %.120s: %s", path.c_str(),
                                describe_errno(errno).c_str());
    if (!S_ISREG(about.st_mode)) return invalid_argument("%.120s is no file", path.c_str());
    if (about.st_mode & S_IRWXO)
        return invalid_argument("%.120s can be read or written by others (mode %o), so it is not "
                                "secret; chmod o= %.120s",
                                path.c_str(), about.st_mode & 07777, path.c_str());
    if (about.st_size < fewest_bytes || about.st_size > most_bytes)
        return invalid_argument("%.120s holds %lld bytes; a secret has %lld to %lld", path.c_str(),
                                static_cast<long long>(about.st_size),
                                static_cast<long long>(fewest_bytes),
                                static_cast<long long>(most_bytes));
    std::vector<unsigned char> content(static_cast<size_t>(about.st_size));
    size_t got = 0;
    while (got < content.size()) {
        const ssize_t piece = read(file.number(), content.data() + got, content.size() - got);
        if (piece < 0 && errno == EINTR) continue;
        if (piece <= 0)
            return Error::make(Code::system_error, "cannot read %.120s: %s", path.c_str(),
                               piece < 0 ? strerror(errno) : "it became shorter");
        got += static_cast<size_t>(piece);
    }
    Secret secret;
    crypto_generichash(reinterpret_cast<unsigned char *>(secret.data()), secret.size(),
                       content.data(), content.size(), nullptr, 0);
    sodium_memzero(content.data(), content.size());
    return secret;
}

// ---- Process manager

namespace {

constexpr size_t longest_line = 4096;
constexpr const char *key = "qccl-rendezvous";

class Manager {
public:
    Manager(int connection, TimePoint deadline) : connection_(connection), deadline_(deadline) {}

    // Sends a request and returns the answer, which must have the expected command and no error.
    Result<std::string> ask(const std::string &question, const char *expected) {
        QCCL_TRY(send_line(question + "\n"));
        QCCL_TRY(const std::string answer, receive_line());
        const std::string result = value_of(answer, "rc");
        if (value_of(answer, "cmd") == expected && (result.empty() || result == "0")) return answer;
        return Error::make(Code::system_error, "the process manager answers \"%.60s\" to \"%.60s\"",
                           answer.c_str(), question.c_str());
    }

    // Returns the value of `name` in a line such as "cmd=x kvsname=y"; empty if it is not there.
    static std::string value_of(const std::string &line, const std::string &name) {
        for (size_t at = 0; at < line.size();) {
            const size_t end = std::min(line.find(' ', at), line.size());
            if (line.compare(at, name.size() + 1, name + "=") == 0)
                return line.substr(at + name.size() + 1, end - at - name.size() - 1);
            at = end + 1;
        }
        return "";
    }

private:
    Done send_line(const std::string &line) {
        // MSG_NOSIGNAL: a manager that has gone must not end this process with SIGPIPE.
        const ssize_t sent = send(connection_, line.data(), line.size(), MSG_NOSIGNAL);
        if (sent == static_cast<ssize_t>(line.size())) return {};
        return Error::make(Code::system_error, "cannot speak to the process manager: %s",
                           sent < 0 ? strerror(errno) : "the wire is full");
    }
    // Reads byte by byte, because what follows the line belongs to another reader.
    Result<std::string> receive_line() {
        std::string line;
        while (line.size() < longest_line) {
            pollfd one{connection_, POLLIN, 0};
            const int ready = poll(&one, 1, poll_timeout_ms(Clock::now(), deadline_));
            if (ready == 0 && Clock::now() >= deadline_)
                return Error::make(Code::timeout, "the process manager gives no answer in time: "
                                                  "have all ranks come?");
            if (ready <= 0) continue;
            char c = 0;
            const ssize_t got = recv(connection_, &c, 1, 0);
            if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN))
                return Error::make(Code::system_error, "the process manager hangs up");
            if (got > 0 && c == '\n') return line;
            if (got > 0) line += c;
        }
        return Error::make(Code::system_error, "the process manager does not end a line");
    }

    using Clock = std::chrono::steady_clock;
    int connection_;
    TimePoint deadline_;
};

} // namespace

Result<std::string> spread_through_manager(int connection, uint32_t rank, const std::string &text,
                                           TimePoint deadline) {
    Manager manager(connection, deadline);
    QCCL_TRY(outcome(manager.ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init")));
    QCCL_TRY(const std::string answer, manager.ask("cmd=get_my_kvsname", "my_kvsname"));
    const std::string space = " kvsname=" + Manager::value_of(answer, "kvsname") + " key=" + key;
    if (rank == 0)
        QCCL_TRY(outcome(manager.ask("cmd=put" + space + " value=" + text, "put_result")));
    QCCL_TRY(outcome(manager.ask("cmd=barrier_in", "barrier_out")));
    QCCL_TRY(const std::string got, manager.ask("cmd=get" + space, "get_result"));
    QCCL_TRY(outcome(manager.ask("cmd=finalize", "finalize_ack")));
    return Manager::value_of(got, "value");
}

} // namespace qccl
