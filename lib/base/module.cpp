// Loads modules with dlopen. A module is searched first in the library's own folder, where the
// modules of a build folder lie, also if an installation has been moved. In a program that is
// linked with libqccl.a this is the program's folder, so the search goes on where the loader looks
// (the program's run path, LD_LIBRARY_PATH, the system's folders) and where the modules were
// installed.
//
// Second instances: the loader takes two files for the same library if their paths, their inodes or
// the names by which other objects ask for them are equal. So each copy is a separate file in
// memory, and the copies ask for each other by path: the path replaces the name in the copy's
// bytes.
//
// The loader looks for a symbol in the program, and in everything loaded with RTLD_GLOBAL, before
// it looks in the copies. The copies need this order for the symbols of libc: libc's strdup takes
// memory from the program's malloc, and a program can have the variable `environ` in its own
// memory. With RTLD_DEEPBIND the copies would find libc's free and libc's `environ` instead. But if
// the originals are loaded with RTLD_GLOBAL, the copies would find the originals' symbols, too. So
// the libraries' own symbols have other names in the copies.
//
// The loader finds names by a hash table that the linker has made, and the other names fit into
// this table: the GNU hash of a name is made by h = 33 h + c for each character c, so it stays the
// same where one character is greater by 1 and the next one is less by 33. In a library that has
// only the older kind of table the loader does not find the other names; the function then returns
// an error.
//
// dlmopen is no alternative: its namespace has a C library of its own, whose keys of
// thread-specific data are the same numbers as the program's and refer to the same places.
#include "base/module.hpp"

#include "base/system.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

namespace qccl {

// ---- Modules of the library

// Returns the folder of the shared object that contains this code.
static std::filesystem::path own_folder() {
    Dl_info info{};
    if (dladdr(reinterpret_cast<const void *>(&find_in_module), &info) == 0) return {};
    return std::filesystem::path(info.dli_fname).parent_path();
}

// Returns the folder that the build names; empty if it names none. The compiler does not see the
// text, because some package managers replace the beginning of the path in the finished file.
static std::filesystem::path installed_folder() {
#ifdef QCCL_LIBRARY_DIR
    static const char *const volatile folder = QCCL_LIBRARY_DIR;
    return folder;
#else
    return {};
#endif
}

// Whether dlerror reports that `file_name` itself was not found. If a library that the module needs
// is missing, dlerror names that library, and if the module was found but does not load, dlerror
// names its path.
static bool is_about_no_file(std::string_view said, const std::string &file_name) {
    return said.starts_with(file_name + ":") && said.ends_with(std::strerror(ENOENT));
}

static Error not_loaded(const char *file_name) {
    const char *const said = dlerror();
    if (is_about_no_file(said, file_name))
        return Error::make(Code::system_error, "there is no %s", file_name).compared(0, ENOENT);
    return Error::make(Code::system_error, "%s cannot be loaded: %.200s", file_name, said);
}

// Returns the path of the file in the folder; empty if the folder has no such file.
static std::filesystem::path path_in(const std::filesystem::path &folder, const char *file_name) {
    std::error_code ignored;
    const std::filesystem::path path = folder / file_name;
    return std::filesystem::exists(path, ignored) ? path : std::filesystem::path();
}

static void *open_module(const char *file_name) {
    static constexpr int flags = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
    const std::filesystem::path beside = path_in(own_folder(), file_name);
    if (!beside.empty()) return dlopen(beside.c_str(), flags);
    if (void *const found = dlopen(file_name, flags)) return found;
    // The loader's message stays if there is nothing else.
    const std::filesystem::path installed = path_in(installed_folder(), file_name);
    return installed.empty() ? nullptr : dlopen(installed.c_str(), flags);
}

Result<void *> find_in_module(const char *file_name, const char *symbol) {
    void *const library = open_module(file_name);
    if (!library) return not_loaded(file_name);
    void *const found = dlsym(library, symbol);
    if (!found)
        return Error::make(Code::system_error, "%s is no module of this library: it has no %s",
                           file_name, symbol);
    return found;
}

Done check_abi(const char *file_name, uint32_t built_for, uint32_t needed) {
    if (built_for == needed) return {};
    return Error::make(Code::system_error, "%s belongs to another version: built for %u, need %u",
                       file_name, built_for, needed)
        .compared(needed, built_for);
}

// ---- A second instance of a library

namespace {

struct Original {
    std::string path;
    std::string image; // the file's bytes, and then those of the copy
    FileDescriptor copy;

    std::string name() const { return path.substr(path.rfind('/') + 1); }
};

// Builds of a library that come with other software append a tag to its name.
bool is_file_of(std::string_view library, std::string_view name) {
    return name.starts_with(library) && name.size() > library.size() &&
           (name[library.size()] == '.' || name[library.size()] == '-');
}

std::vector<Original> loaded_objects(Libraries libraries) {
    struct Found {
        Libraries libraries;
        std::vector<Original> objects;
    } found{libraries, {}};
    dl_iterate_phdr(
        [](dl_phdr_info *info, size_t, void *context) {
            auto &to = *static_cast<Found *>(context);
            Original object{info->dlpi_name, {}, {}};
            const auto is_its = [name = object.name()](std::string_view library) {
                return is_file_of(library, name);
            };
            if (std::any_of(to.libraries.begin(), to.libraries.end(), is_its))
                to.objects.push_back(std::move(object));
            return 0;
        },
        &found);
    return std::move(found.objects);
}

Error refuse_copy(const Original &object, const char *why) {
    return Error::make(Code::system_error, "no second copy of %.60s can be loaded: %.120s",
                       object.name().c_str(), why);
}

// Returns a path padded to the length of the name that it replaces. The path is longer than `name`
// if the name is too short.
std::string path_of(const FileDescriptor &file, const std::string &name) {
    const std::string path = "/dev/fd/" + std::to_string(file.number());
    return std::string(name.size() - std::min(name.size(), path.size()), '/') + path;
}

// Returns an empty file whose path the loader does not know yet: copies that an ancestor of this
// process made are known under such paths, too.
Result<FileDescriptor> open_file_in_memory(const std::string &name) {
    std::vector<FileDescriptor> taken;
    for (;;) {
        FileDescriptor file(memfd_create("qccl", MFD_CLOEXEC));
        if (!file.is_open()) return cannot("make a file in memory");
        void *const earlier = dlopen(path_of(file, name).c_str(), RTLD_LAZY | RTLD_NOLOAD);
        if (!earlier) return file;
        dlclose(earlier);
        taken.push_back(std::move(file));
    }
}

Done write_image(const Original &object) {
    for (size_t done = 0; done < object.image.size();) {
        const ssize_t written =
            write(object.copy.number(), object.image.data() + done, object.image.size() - done);
        if (written <= 0) return cannot("write to a file in memory");
        done += static_cast<size_t>(written);
    }
    return {};
}

// Replaces `name` everywhere it is a whole string. Returns false if it does not occur.
bool replace_name(std::string &image, const std::string &name, const std::string &other) {
    const std::string whole = '\0' + name + '\0';
    size_t at = image.find(whole);
    const bool is_there = at != image.npos;
    for (; at != image.npos; at = image.find(whole, at + 1))
        image.replace(at + 1, other.size(), other);
    return is_there;
}

// Returns `count` items at `offset`; empty if the file ends before.
template <typename T>
std::vector<T> read_at(const std::string &image, size_t offset, size_t count) {
    std::vector<T> found(count);
    const size_t bytes = count * sizeof(T), begin = std::min(offset, image.size());
    if (image.copy(reinterpret_cast<char *>(found.data()), bytes, begin) < bytes) found.clear();
    return found;
}

// Returns the string table with the names of all symbols that the object defines or asks for. Empty
// if the file does not tell where the table is.
std::span<char> symbol_names(std::string &image) {
    const auto headers = read_at<ElfW(Ehdr)>(image, 0, 1);
    if (headers.empty()) return {};
    const auto sections =
        read_at<ElfW(Shdr)>(image, headers.front().e_shoff, headers.front().e_shnum);
    const auto symbols =
        std::find_if(sections.begin(), sections.end(),
                     [](const ElfW(Shdr) & section) { return section.sh_type == SHT_DYNSYM; });
    if (symbols == sections.end() || symbols->sh_link >= sections.size()) return {};
    const ElfW(Shdr) &strings = sections[symbols->sh_link];
    const size_t begin = std::min<size_t>(strings.sh_offset, image.size());
    return {image.data() + begin, std::min<size_t>(strings.sh_size, image.size() - begin)};
}

// The prefix is replaced inside longer names, too: a name may be stored as the end of another one.
void rename_symbols(std::span<char> names, std::string_view library) {
    const std::string prefix = std::string(library.substr(std::strlen("lib"))) + '_';
    const std::string_view text(names.data(), names.size());
    for (size_t at = text.find(prefix); at != text.npos; at = text.find(prefix, at)) {
        names[at] = static_cast<char>(names[at] + 1);
        names[at + 1] = static_cast<char>(names[at + 1] - 33);
    }
}

Done prepare_copies(std::vector<Original> &objects, Libraries libraries) {
    for (Original &object : objects) {
        std::ifstream file(object.path, std::ios::binary);
        object.image.assign(std::istreambuf_iterator<char>(file), {});
        if (!file) return refuse_copy(object, "its file cannot be read");
        QCCL_TRY(object.copy, open_file_in_memory(object.name()));
        const std::span<char> names = symbol_names(object.image);
        if (names.empty()) return refuse_copy(object, "its file lists no symbols");
        for (const std::string_view library : libraries) rename_symbols(names, library);
    }
    for (size_t i = 1; i < objects.size(); i++) { // no object asks for the first one
        const std::string name = objects[i].name(), path = path_of(objects[i].copy, name);
        if (path.size() > name.size()) return refuse_copy(objects[i], "its name is too short");
        for (Original &object : objects)
            if (!replace_name(object.image, name, path) && &object == &objects[i])
                return refuse_copy(object, "it has another name inside");
    }
    for (const Original &object : objects) QCCL_TRY(write_image(object));
    return {};
}

} // namespace

Result<void *> find_in_private_copy(const void *inside, Libraries libraries, const char *symbol) {
    Dl_info first{};
    if (dladdr(inside, &first) == 0)
        return Error::make(Code::internal_error, "no shared object is loaded at %p", inside);
    std::vector<Original> objects = loaded_objects(libraries);
    objects.insert(objects.begin(), Original{first.dli_fname, {}, {}});
    QCCL_TRY(prepare_copies(objects, libraries));
    const std::string path = path_of(objects.front().copy, objects.front().name());
    void *const copy = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    void *const found = copy ? dlsym(copy, symbol) : nullptr;
    if (!found) return refuse_copy(objects.front(), dlerror());
    return found;
}

} // namespace qccl
