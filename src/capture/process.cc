#include "capture/process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

extern char** environ;

namespace tlbscope::capture {

namespace {

class Pipe {
  public:
    Pipe() {
        if (::pipe2(ends_.data(), O_CLOEXEC) != 0) ends_ = {-1, -1};
    }
    Pipe(const Pipe&) = delete;
    Pipe& operator=(const Pipe&) = delete;
    ~Pipe() {
        close_end(0);
        close_end(1);
    }
    void close_end(std::size_t end) {
        if (ends_[end] >= 0) ::close(std::exchange(ends_[end], -1));
    }
    [[nodiscard]] int read_end() const { return ends_[0]; }
    [[nodiscard]] int write_end() const { return ends_[1]; }

  private:
    std::array<int, 2> ends_{-1, -1};
};

// Reads both pipes until their writers are gone.
void drain(Pipe& first, std::string& first_text, Pipe& second, std::string& second_text) {
    std::array<pollfd, 2> waits{pollfd{first.read_end(), POLLIN, 0}, pollfd{second.read_end(), POLLIN, 0}};
    const std::array<std::string*, 2> texts{&first_text, &second_text};
    while (waits[0].fd >= 0 || waits[1].fd >= 0) {
        if (::poll(waits.data(), waits.size(), -1) < 0 && errno != EINTR) return;
        for (std::size_t i = 0; i < waits.size(); ++i) {
            if (waits[i].fd < 0 || waits[i].revents == 0) continue;
            char buffer[65536];
            const ssize_t n = ::read(waits[i].fd, buffer, sizeof buffer);
            if (n > 0) texts[i]->append(buffer, static_cast<std::size_t>(n));
            if (n == 0 || (n < 0 && errno != EINTR)) waits[i].fd = -1;
        }
    }
}

}  // namespace

Result<Finished> run(const std::vector<std::string>& argv, const std::filesystem::path& folder) {
    Pipe out;
    Pipe err;
    if (out.write_end() < 0 || err.write_end() < 0) return system_error(argv[0], "cannot make a pipe", errno);

    std::vector<char*> arguments;
    for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
    arguments.push_back(nullptr);
    static char locale[] = "LC_ALL=C";
    std::vector<char*> environment{locale};
    for (char** e = environ; *e != nullptr; ++e)
        if (std::strncmp(*e, "LC_ALL=", 7) != 0) environment.push_back(*e);
    environment.push_back(nullptr);

    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out.write_end(), 1);
    posix_spawn_file_actions_adddup2(&actions, err.write_end(), 2);
    if (!folder.empty()) posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
    pid_t pid = -1;
    const int code =
        ::posix_spawnp(&pid, argv[0].c_str(), &actions, nullptr, arguments.data(), environment.data());
    posix_spawn_file_actions_destroy(&actions);
    if (code != 0) return system_error(argv[0], "cannot run", code);

    out.close_end(1);
    err.close_end(1);
    Finished finished;
    drain(out, finished.output, err, finished.errors);
    int status = 0;
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    finished.ok = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    return finished;
}

std::optional<std::filesystem::path> find_program(const std::string& name) {
    const auto usable = [](const std::filesystem::path& path) {
        struct stat info{};
        return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && ::access(path.c_str(), X_OK) == 0;
    };
    std::error_code ignored;
    if (name.find('/') != std::string::npos) {
        const std::filesystem::path path = std::filesystem::absolute(name, ignored).lexically_normal();
        return usable(path) ? std::optional(path) : std::nullopt;
    }
    const char* variable = std::getenv("PATH");
    std::string folders = variable != nullptr ? variable : "/usr/local/bin:/usr/bin:/bin";
    for (std::size_t at = 0; at <= folders.size() && !name.empty();) {
        const std::size_t end = std::min(folders.find(':', at), folders.size());
        const std::string folder = end == at ? "." : folders.substr(at, end - at);
        const std::filesystem::path path = std::filesystem::absolute(folder, ignored) / name;
        if (usable(path)) return path.lexically_normal();
        at = end + 1;
    }
    return std::nullopt;
}

Result<WorkFolder> WorkFolder::create(const std::filesystem::path& parent) {
    std::error_code code;
    const std::filesystem::path base = parent.empty() ? std::filesystem::temp_directory_path(code) : parent;
    if (code) return system_error("TMPDIR", "cannot use the folder for temporary files", code.value());
    std::string name = (base / "tlbscope-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) return system_error(name, "cannot create a working folder", errno);
    return WorkFolder(name);
}

WorkFolder::WorkFolder(WorkFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}

WorkFolder& WorkFolder::operator=(WorkFolder&& other) noexcept {
    std::swap(path_, other.path_);
    return *this;
}

WorkFolder::~WorkFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace tlbscope::capture
