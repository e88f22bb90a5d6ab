// SPDX-License-Identifier: GPL-2.0-or-later
#include "job_files.hpp"

#include "agent/node/adoption.hpp"
#include "common/replace_file.hpp"
#include "common/unique_fd.hpp"
#include "node/packet.hpp"
#include "node/record.hpp"

#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace singularity::agent {

namespace {

// A program, and what is said of up to 4096 ranks and 65536 hosts.
constexpr std::size_t kJobRecordLimit = 2 * node::kPacketLimit;

} // namespace

Expected<void> make_job_directory(const std::filesystem::path &directory) {
    if (mkdir(directory.c_str(), 0700) != 0)
        return std::unexpected(errno_error("make the directory", directory.native()));
    return {};
}

Expected<void> remove_job_directory(const std::filesystem::path &directory) {
    std::error_code error;
    std::filesystem::remove_all(directory, error);
    if (error)
        return failure("remove", directory.native(), error.message(), error.value());
    return {};
}

Expected<std::set<std::string>> job_directories(const std::filesystem::path &place) {
    if (mkdir(place.c_str(), 0700) != 0 && errno != EEXIST)
        return std::unexpected(errno_error("make the directory", place.native()));
    return names_in(place);
}

Expected<void> write_record(const std::filesystem::path &directory,
                            const google::protobuf::MessageLite &record) {
    return replace_file(directory / "record", record.SerializeAsString(), 0600, Durable::kYes);
}

Expected<void> read_record(const std::filesystem::path &directory, google::protobuf::MessageLite &record) {
    const auto path = directory / "record";
    auto file = open_file(path, O_RDONLY | O_NOFOLLOW);
    if (!file)
        return propagate(file);
    std::string content;
    struct stat about{};
    if (fstat(file->get(), &about) != 0)
        return std::unexpected(errno_error("look at", path.native()));
    if (std::cmp_greater(about.st_size, kJobRecordLimit))
        return failure(
            "read", path.native(),
            fmt::format("it has {} bytes, and a record at most {}", about.st_size, kJobRecordLimit), EFBIG);
    content.resize(static_cast<std::size_t>(about.st_size));
    if (std::cmp_not_equal(::read(file->get(), content.data(), content.size()), content.size()))
        return std::unexpected(errno_error("read", path.native()));
    if (!record.ParseFromString(content))
        return failure("read", path.native(), "it is no whole record, or one of another release", EBADMSG);
    return {};
}

} // namespace singularity::agent
