// SPDX-License-Identifier: GPL-2.0-or-later
#include "rounds.hpp"

#include "criu-hooks/store/hash.hpp"
#include "directory.hpp"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string_view>

#include <fmt/format.h>
#include <sys/stat.h>

namespace singularity::store {
namespace {

constexpr std::string_view kFirstLine = "slurm-singularity garbage collection 1\n";
constexpr std::string_view kSettling = "settling";
constexpr std::string_view kLease = "lease ";
constexpr std::string_view kFileWord = "file ";
constexpr std::string_view kHash = "hash ";
constexpr std::size_t kMostFiles = 65536; // in one round: what is held in memory stays small
constexpr std::uint64_t kMostRoundBytes = std::uint64_t{64} << 20U;

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

std::optional<Round> parse(std::string name, std::string_view text) {
    constexpr std::size_t kLastLine = kHash.size() + (2 * Hash::kSize) + 1;
    if (text.size() < kFirstLine.size() + kLastLine || !text.starts_with(kFirstLine))
        return std::nullopt;
    const std::string_view body = text.substr(0, text.size() - kLastLine);
    const std::string_view last = text.substr(body.size());
    if (last != fmt::format("{}{}\n", kHash, hash_of(bytes_of(body)).hex()))
        return std::nullopt;
    Round round{std::move(name), false, {}, {}};
    for (std::string_view rest = body.substr(kFirstLine.size()); !rest.empty();) {
        const std::string_view line = rest.substr(0, rest.find('\n'));
        rest.remove_prefix(std::min(rest.size(), line.size() + 1));
        if (line == kSettling)
            round.settling = true;
        else if (line.starts_with(kLease))
            round.leases.emplace_back(line.substr(kLease.size()));
        else if (line.starts_with(kFileWord))
            round.files.emplace_back(line.substr(kFileWord.size()));
        else
            return std::nullopt;
    }
    return round;
}

} // namespace

Expected<Rounds> read_rounds(const UserSpace &space) {
    auto names = space.rounds.names();
    if (!names)
        return propagate(names);
    Rounds rounds;
    for (const std::string &name : *names) {
        const auto damaged = [&](const std::string &path) {
            rounds.damaged.push_back(
                {"read", path,
                 "it is damaged: it does not have the hash that it ends with; the next garbage "
                 "collection writes it anew",
                 EBADMSG});
            rounds.damaged_names.push_back(name);
        };
        const auto file = space.rounds.open_file(name);
        if (!file && file.error().code == ENOENT)
            continue; // another garbage collection has finished with it
        if (!file)
            return std::unexpected(file.error());
        const std::string path = space.rounds.path_of(name);
        struct stat status{};
        if (::fstat(file->get(), &status) != 0)
            return std::unexpected(errno_error("look at", path));
        if (static_cast<std::uint64_t>(status.st_size) > kMostRoundBytes) {
            damaged(path);
            continue;
        }
        std::string text(static_cast<std::size_t>(status.st_size), '\0');
        const auto got = read_all(*file, std::as_writable_bytes(std::span(text)), 0, path);
        if (!got)
            return std::unexpected(got.error());
        if (auto round = parse(name, text)) {
            rounds.whole.push_back(*std::move(round));
            continue;
        }
        damaged(path);
    }
    return rounds;
}

Expected<void> write_rounds(const UserSpace &space, const Round &model, std::span<const std::string> files) {
    std::size_t most = kMostFiles;
    while (!files.empty()) {
        const auto part = files.first(std::min(files.size(), most));
        std::string text(kFirstLine);
        if (model.settling)
            text += fmt::format("{}\n", kSettling);
        for (const std::string &lease : model.leases)
            text += fmt::format("{}{}\n", kLease, lease);
        for (const std::string &file : part)
            text += fmt::format("{}{}\n", kFileWord, file);
        text += fmt::format("{}{}\n", kHash, hash_of(bytes_of(text)).hex());
        if (auto published =
                publish_file(space.temporary, space.rounds, "round-" + random_name(), bytes_of(text));
            !published) {
            // As much as there is room for; what it removes makes more.
            if (published.error().code != ENOSPC || part.size() == 1)
                return published;
            most = part.size() / 2;
            continue;
        }
        files = files.subspan(part.size());
    }
    return {};
}

} // namespace singularity::store
