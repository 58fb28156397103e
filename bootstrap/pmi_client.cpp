// PMI-1 requests and answers over the descriptor that the process manager has left open.
#include "bootstrap/pmi_client.hpp"

#include <cerrno>
#include <cstring>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace qccl {

namespace {

constexpr size_t longest_line = 4096;
constexpr const char *key = "qccl-rendezvous";

class Manager {
public:
    Manager(int connection, TimePoint deadline) : connection_(connection), deadline_(deadline) {}

    // Sends a request and returns the answer, which must have the expected command and no error.
    Result<std::string> ask(const std::string &question, const char *expected) {
        QCCL_TRY(say(question + "\n"));
        QCCL_TRY(const std::string answer, hear());
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
    Done say(const std::string &line) {
        // MSG_NOSIGNAL: a manager that has gone must not end this process with SIGPIPE.
        const ssize_t sent = send(connection_, line.data(), line.size(), MSG_NOSIGNAL);
        if (sent == static_cast<ssize_t>(line.size())) return {};
        return Error::make(Code::system_error, "cannot speak to the process manager: %s",
                           sent < 0 ? strerror(errno) : "the wire is full");
    }
    // Reads byte by byte, because what follows the line belongs to another reader.
    Result<std::string> hear() {
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
