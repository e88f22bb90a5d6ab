// SPDX-License-Identifier: GPL-2.0-or-later
// Times of the checkpoint store beside times of plain files, on one directory, in turns: what
// tests/bench/store.py runs. Prints one line of JSON: for each figure the seconds or the ratio of every
// round.
#include "criu-hooks/store/maintenance.hpp"
#include "criu-hooks/store/store.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

namespace {

using namespace singularity;
namespace fs = std::filesystem;
using Bytes = std::vector<std::byte>;

constexpr std::size_t kPiece = store::kChunkSize;
constexpr std::size_t kPool = 16 * kPiece; // of random bytes; pieces differ by a number in every page
constexpr std::uint64_t kBytes = std::uint64_t{768} << 20U;

template <class T>
T must(Expected<T> result) {
    if (!result)
        throw std::runtime_error(result.error().message());
    return *std::move(result);
}
void must(const Expected<void> &result) {
    if (!result)
        throw std::runtime_error(result.error().message());
}
void must(bool done, const char *what) {
    if (!done)
        throw std::runtime_error(fmt::format("{}: {}", what, std::strerror(errno)));
}

double seconds(const std::function<void()> &action) {
    const auto start = std::chrono::steady_clock::now();
    action();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Content in pieces, each unlike all others: `salt` tells one content from another.
class Content {
  public:
    explicit Content(bool compresses) : pool_(kPool) {
        std::mt19937_64 random(4711);
        for (std::size_t i = 0; i < pool_.size(); i += 8) {
            std::uint64_t word = random();
            if (compresses)
                word &= 0x00000000FFFF0FFFU; // less than half of the bits
            std::memcpy(pool_.data() + i, &word, 8);
        }
    }
    void each(std::uint64_t salt, const std::function<void(std::span<const std::byte>)> &use) {
        constexpr std::size_t kPage = 4096;
        for (std::uint64_t at = 0; at < kBytes; at += kPiece) {
            const auto piece = std::span(pool_).subspan(at % kPool, kPiece);
            for (std::size_t page = 0; page < kPiece; page += kPage) {
                const std::uint64_t number = (salt << 40U) + at + page;
                std::memcpy(piece.data() + page, &number, sizeof number);
            }
            use(piece);
        }
    }

  private:
    Bytes pool_;
};

std::string save(const store::Store &opened, Content &content, std::uint64_t salt) {
    store::Request request;
    request.job = "bench";
    auto writer = must(opened.begin(request));
    auto image = must(writer.image({"node", "", "pages"}));
    content.each(salt, [&image](auto piece) { must(image.append(piece)); });
    must(image.finish());
    return must(writer.commit()).id;
}

void write_plain(const fs::path &path, Content &content, std::uint64_t salt) {
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    must(file >= 0, "open");
    content.each(salt, [file](auto piece) {
        must(::write(file, piece.data(), piece.size()) == static_cast<ssize_t>(piece.size()), "write");
    });
    must(::fsync(file) == 0 && ::close(file) == 0, "fsync");
}

void read_plain(const fs::path &path) {
    Bytes buffer(kPiece);
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    must(file >= 0, "open");
    while (const ssize_t got = ::read(file, buffer.data(), buffer.size()))
        must(got > 0, "read");
    ::close(file);
}

void read_store(const store::Store &opened, const std::string &id) {
    Bytes buffer(kPiece);
    const auto checkpoint = must(opened.read(0, id));
    auto image = must(checkpoint.image({"node", "", "pages"}));
    while (must(image.read(buffer)) != 0) {
    }
}

// So that what is read next comes from the disk.
void forget(const fs::path &below) {
    const auto one = [](const fs::path &path) {
        const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        must(file >= 0 && ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) == 0, "forget");
        ::close(file);
    };
    if (!fs::is_directory(below)) {
        one(below);
        return;
    }
    for (const auto &entry : fs::recursive_directory_iterator(below))
        if (entry.is_regular_file())
            one(entry.path());
}

int run(const fs::path &directory, int rounds) {
    const fs::path top = directory / "store";
    const fs::path plain = directory / "plain";
    store::Options options;
    options.create = true;
    const auto opened = must(store::Store::open(top, options));
    Content hard(false);
    Content easy(true);
    std::map<std::string, std::vector<double>> results;
    const auto gb = static_cast<double>(kBytes) / 1e9;
    for (int round = 0; round < rounds; ++round) {
        const auto salt = static_cast<std::uint64_t>(round) + 1;
        const double plain_write = seconds([&] { write_plain(plain, hard, salt); });
        std::string id;
        const double store_write = seconds([&] { id = save(opened, hard, salt); });
        const double again = seconds([&] { save(opened, hard, salt); });
        const double plain_easy = seconds([&] { write_plain(directory / "easy", easy, salt); });
        const double store_easy = seconds([&] { save(opened, easy, salt); });
        forget(plain);
        const double plain_read = seconds([&] { read_plain(plain); });
        forget(top);
        const double store_read = seconds([&] { read_store(opened, id); });
        const double plain_cached = seconds([&] { read_plain(plain); });
        const double store_cached = seconds([&] { read_store(opened, id); });
        forget(top);
        const double verify =
            seconds([&] { must(must(store::verify(opened, 0, id)).damage.empty(), "verify"); });
        results["write_ratio"].push_back(plain_write / store_write);
        results["write_compressible_ratio"].push_back(plain_easy / store_easy);
        results["read_ratio"].push_back(plain_read / store_read);
        results["read_cached_ratio"].push_back(plain_cached / store_cached);
        results["verify_ratio"].push_back(plain_read / verify);
        results["write_gbps"].push_back(gb / store_write);
        results["unchanged_gbps"].push_back(gb / again);
        results["read_gbps"].push_back(gb / store_read);
        results["read_cached_gbps"].push_back(gb / store_cached);
        for (const auto &checkpoint : must(opened.list(0)).checkpoints)
            must(must(opened.remove(0, checkpoint.id)), "remove");
        store::GcOptions gc;
        gc.grace = gc.settle = std::chrono::seconds(0);
        results["gc_s"].push_back(seconds([&] { must(store::collect_garbage(opened, 0, gc)); }));
    }
    std::string text;
    for (const auto &[name, values] : results)
        text += fmt::format("{}\"{}\": [{}]", text.empty() ? "" : ", ", name, fmt::join(values, ", "));
    std::cout << "{" << text << "}\n";
    return EXIT_SUCCESS;
}

} // namespace

int main(int argc, char **argv) {
    if (argc != 3) {
        std::cerr << "usage: store_bench DIRECTORY ROUNDS\n";
        return EXIT_FAILURE;
    }
    try {
        return run(argv[1], std::atoi(argv[2]));
    } catch (const std::exception &error) {
        std::cerr << "store_bench: " << error.what() << '\n';
        return EXIT_FAILURE;
    }
}
