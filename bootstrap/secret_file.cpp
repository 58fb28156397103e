// Checks a secret's file, reads it and hashes its content.
#include "bootstrap/secret_file.hpp"

#include "base/file_descriptor.hpp"
#include "base/system_error.hpp"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>

namespace qccl {

static constexpr off_t fewest_bytes = 16, most_bytes = 64 << 10;

Result<Secret> read_secret_file(const std::string &path) {
    const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat about {};
    if (!file.is_open() || fstat(file.number(), &about) != 0)
        return Error::make(Code::invalid_argument, "cannot read %.120s: %s", path.c_str(),
                           describe_errno(errno).c_str());
    if (!S_ISREG(about.st_mode))
        return Error::make(Code::invalid_argument, "%.120s is no file", path.c_str());
    if (about.st_mode & S_IRWXO)
        return Error::make(Code::invalid_argument,
                           "%.120s can be read or written by others (mode %o), so it is not "
                           "secret; chmod o= %.120s",
                           path.c_str(), about.st_mode & 07777, path.c_str());
    if (about.st_size < fewest_bytes || about.st_size > most_bytes)
        return Error::make(
            Code::invalid_argument, "%.120s holds %lld bytes; a secret has %lld to %lld",
            path.c_str(), static_cast<long long>(about.st_size),
            static_cast<long long>(fewest_bytes), static_cast<long long>(most_bytes));
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

} // namespace qccl
