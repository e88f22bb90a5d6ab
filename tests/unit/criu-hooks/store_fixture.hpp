// SPDX-License-Identifier: GPL-2.0-or-later
// What the tests of the checkpoint store share: a store in a temporary directory and content to put in it.
#pragma once

#include "cmocka.hpp"
#include "common/deadline.hpp"
#include "criu-hooks/store/maintenance.hpp"
#include "criu-hooks/store/store.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SINGULARITY_TEST_SANITIZED 1
#endif

namespace singularity::test {

namespace fs = std::filesystem;
using Bytes = std::vector<std::byte>;

#ifdef SINGULARITY_TEST_SANITIZED
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

template <class T>
T must(Expected<T> result, const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
    if (!result)
        fail(result.error().message(), file, line);
    return *std::move(result);
}

inline void must(const Expected<void> &result, const char *file = __builtin_FILE(),
                 int line = __builtin_LINE()) {
    if (!result)
        fail(result.error().message(), file, line);
}

template <class T>
Error must_fail(Expected<T> result, const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
    if (result)
        fail("it did not fail", file, line);
    return std::move(result.error());
}

// A directory that ends with the object.
class TemporaryDirectory {
  public:
    TemporaryDirectory() {
        std::string pattern = fs::temp_directory_path() / "singularity-store-XXXXXX";
        if (::mkdtemp(pattern.data()) == nullptr)
            fail("cannot make " + pattern);
        path_ = pattern;
    }
    TemporaryDirectory(const TemporaryDirectory &) = delete;
    TemporaryDirectory &operator=(const TemporaryDirectory &) = delete;
    TemporaryDirectory(TemporaryDirectory &&) = delete;
    TemporaryDirectory &operator=(TemporaryDirectory &&) = delete;
    ~TemporaryDirectory() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }

    [[nodiscard]] const fs::path &path() const { return path_; }

  private:
    fs::path path_;
};

// Content that neither repeats nor compresses, the same for the same seed (xorshift64*, Vigna 2016).
inline Bytes noise(std::size_t size, std::uint64_t seed) {
    Bytes data(size);
    std::uint64_t state = (seed * 0x9E3779B97F4A7C15U) + 1;
    for (std::size_t i = 0; i < size; i += sizeof state) {
        state ^= state >> 12U;
        state ^= state << 25U;
        state ^= state >> 27U;
        const std::uint64_t word = state * 0x2545F4914F6CDD1DU;
        std::memcpy(data.data() + i, &word, std::min(sizeof word, size - i));
    }
    return data;
}

inline constexpr std::size_t kMiB = std::size_t{1} << 20U;
inline constexpr uid_t kAlice = 1001;
inline constexpr uid_t kBob = 1002;

inline store::Options creating() {
    store::Options options;
    options.create = true;
    options.threads = 2;
    return options;
}

inline store::Request request_of(uid_t uid, std::string job = "4711") {
    store::Request request;
    request.job = std::move(job);
    request.uid = uid;
    request.gid = uid;
    request.user = uid == kAlice ? "alice" : "bob";
    request.tier = "standard";
    return request;
}

inline void write_image(store::Writer &writer, const store::ImageAddress &address,
                        std::span<const std::byte> content) {
    auto image = must(writer.image(address));
    must(image.append(content));
    must(image.finish());
}

// Until what was appended has been looked for in the store.
inline void wait_for_content(const store::Writer &writer) {
    const auto known = [&writer] {
        const auto progress = writer.progress();
        return progress.zeros + progress.reused + progress.added == progress.given;
    };
    must(wait_until(known, Deadline::after(std::chrono::seconds(60)), "chunks to be looked for"));
}

// One checkpoint of one image.
inline std::string save(const store::Store &store, std::span<const std::byte> content,
                        const store::Request &request = request_of(kAlice)) {
    auto writer = must(store.begin(request));
    write_image(writer, {"node0", "", "pages"}, content);
    return must(writer.commit()).id;
}

inline Expected<Bytes> load(const store::Store &store, const std::string &id, uid_t uid = kAlice,
                            const store::ImageAddress &address = {"node0", "", "pages"}) {
    auto checkpoint = store.read(uid, id);
    if (!checkpoint)
        return propagate(checkpoint);
    auto image = checkpoint->image(address);
    if (!image)
        return propagate(image);
    Bytes content(static_cast<std::size_t>(image->size()));
    auto got = image->read(content);
    if (!got)
        return propagate(got);
    assert_int_equal(*got, content.size());
    return content;
}

inline Bytes read_file(const fs::path &path) {
    std::ifstream file(path, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    const auto bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
}

inline void write_file(const fs::path &path, std::span<const std::byte> data) {
    const bool there = fs::exists(path);
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    for (const std::byte byte : data)
        file.put(static_cast<char>(byte));
    assert_true(file.flush().good());
    if (!there)
        fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
}

// All regular files below a directory.
inline std::vector<fs::path> files_below(const fs::path &directory) {
    std::vector<fs::path> files;
    if (fs::exists(directory))
        for (const auto &entry : fs::recursive_directory_iterator(directory))
            if (!entry.is_directory())
                files.push_back(entry.path());
    std::ranges::sort(files);
    return files;
}

inline fs::path user_directory(const TemporaryDirectory &directory, uid_t uid = kAlice) {
    return directory.path() / "store" / "users" / std::to_string(uid);
}

inline store::GcOptions at_once() {
    store::GcOptions options;
    options.grace = std::chrono::seconds(0);
    options.settle = std::chrono::seconds(0);
    return options;
}

// Nothing but what the checkpoints name: no leases, temporary files, condemned chunks or rounds.
inline void expect_tidy(const TemporaryDirectory &directory, uid_t uid = kAlice) {
    for (const char *part : {"pending", "temporary", "condemned", "rounds", "damaged"})
        for (const fs::path &file : files_below(user_directory(directory, uid) / part))
            fail("left behind: " + file.native());
}

inline void expect_whole(const store::Store &store, uid_t uid = kAlice) {
    const auto report = must(store::verify_all(store, uid, false));
    for (const Error &error : report.damage)
        fail(error.message());
}

// Everything that is there is whole and named, after a collection that takes all other writers for dead.
inline store::GcReport collect_all(const TemporaryDirectory &directory, uid_t uid = kAlice) {
    store::Options options;
    options.threads = 2;
    options.lease_timeout = std::chrono::milliseconds(0);
    const auto store = must(store::Store::open(directory.path() / "store", options));
    auto report = must(store::collect_garbage(store, uid, at_once()));
    assert_true(report.complete);
    expect_tidy(directory, uid);
    expect_whole(store, uid);
    const auto used = must(store::usage(store, uid));
    assert_int_equal(files_below(user_directory(directory, uid) / "chunks").size(), used.chunks);
    return report;
}

// Not on a disk: each of many thousand calls of fsync would wait for it.
inline void in_memory() {
    if (::access("/dev/shm", W_OK) == 0)
        ::setenv("TMPDIR", "/dev/shm", 1);
}

// ThreadSanitizer has a thread of its own, from the first that is started on.
#ifdef __SANITIZE_THREAD__
inline constexpr std::ptrdiff_t kMostThreadsAtRest = 2;
#else
inline constexpr std::ptrdiff_t kMostThreadsAtRest = 1;
#endif

// Runs `body`, which returns whether all went well, in a process of its own. No Store with threads may be
// alive: a child of a process with threads inherits locks that nobody will release, and ThreadSanitizer ends
// it when it starts a thread.
template <class Body>
pid_t start_process(Body body) {
    // A thread that was joined is in /proc for a moment longer.
    const auto alone = [] {
        return std::distance(fs::directory_iterator("/proc/self/task"), fs::directory_iterator()) <=
               kMostThreadsAtRest;
    };
    must(
        wait_until(alone, Deadline::after(std::chrono::seconds(30)), "all other threads to end before fork"));
    const pid_t child = ::fork();
    if (child == 0)
        ::_exit(body() ? 0 : 1);
    assert_true(child > 0);
    return child;
}

inline int wait_for(pid_t child) {
    int status = 0;
    assert_int_equal(::waitpid(child, &status, 0), child);
    return status;
}

inline void expect_success(pid_t child) {
    const int status = wait_for(child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail("a process failed: status " + std::to_string(status));
}

} // namespace singularity::test
