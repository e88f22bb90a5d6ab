// SPDX-License-Identifier: GPL-2.0-or-later
#include "cmocka.hpp"
#include "common/unique_fd.hpp"
#include "proxy/image/reader.hpp"
#include "proxy/image/writer.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

namespace {

using namespace singularity;
using namespace singularity::image;

Expected<void> always(std::uint64_t /*bytes*/) { return {}; }

std::vector<std::byte> pattern(std::size_t size) {
    std::vector<std::byte> bytes(size);
    std::mt19937 random(7); // NOLINT(cert-msc32-c,cert-msc51-cpp): the same in every run
    for (auto &byte : bytes)
        byte = static_cast<std::byte>(random());
    return bytes;
}

Expected<void> write_records(Writer &writer) {
    if (auto done = writer.put(RecordType::stream, StreamRecord{.clients = 1}); !done)
        return done;
    const auto code = pattern(3 * kPiece / 2);
    if (auto done = writer.put(RecordType::code, CodeRecord{.digest = digest_of(code), .size = code.size()});
        !done)
        return done;
    if (auto done = writer.put_pieces(RecordType::code_data, code); !done)
        return done;
    if (auto done = writer.put(RecordType::end, EndRecord{.records = writer.records() + 1}); !done)
        return done;
    return writer.flush();
}

Expected<void> write_stream(int fd) {
    Writer writer(fd, Deadline::after(std::chrono::seconds(10)), always);
    return write_records(writer);
}

Expected<void> read_stream(int fd) {
    Reader reader(fd, Deadline::after(std::chrono::seconds(10)), always);
    const auto stream = reader.next(RecordType::stream);
    if (!stream)
        return std::unexpected(stream.error());
    const auto record = reader.next(RecordType::code);
    if (!record)
        return std::unexpected(record.error());
    const auto code = fixed_of<CodeRecord>(*record);
    if (!code)
        return std::unexpected(code.error());
    std::vector<std::byte> bytes;
    if (auto done = reader.pieces(RecordType::code_data, code->size,
                                  [&](std::span<const std::byte> piece) -> Expected<void> {
                                      bytes.insert(bytes.end(), piece.begin(), piece.end());
                                      return {};
                                  });
        !done)
        return done;
    if (digest_of(bytes) != code->digest)
        return failure("read", "the code", "it is another one");
    const auto last = reader.next(RecordType::end);
    if (!last)
        return std::unexpected(last.error());
    const auto end = fixed_of<EndRecord>(*last);
    if (!end)
        return std::unexpected(end.error());
    return end->records == reader.records() ? Expected<void>{}
                                            : failure("read", "the end", "it counts otherwise");
}

UniqueFd file_with(std::span<const std::byte> bytes) {
    UniqueFd file(memfd_create("image", MFD_CLOEXEC));
    assert_true(std::cmp_equal(pwrite(file.get(), bytes.data(), bytes.size(), 0), bytes.size()));
    return file;
}

std::vector<std::byte> content_of(const UniqueFd &file) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(lseek(file.get(), 0, SEEK_END)));
    assert_true(std::cmp_equal(pread(file.get(), bytes.data(), bytes.size(), 0), bytes.size()));
    return bytes;
}

std::vector<std::byte> whole() {
    const UniqueFd file(memfd_create("image", MFD_CLOEXEC));
    assert_true(write_stream(file.get()).has_value());
    return content_of(file);
}

void what_was_written_is_read(void ** /*state*/) {
    const auto file = file_with(whole());
    const auto read = read_stream(file.get());
    if (!read)
        test::fail(read.error().message());
}

// A pipe holds less than a record: both sides wait for each other.
void a_pipe_will_do(void ** /*state*/) {
    int ends[2] = {-1, -1};
    assert_int_equal(pipe(ends), 0);
    UniqueFd reading(ends[0]);
    UniqueFd writing(ends[1]);
    Expected<void> written;
    std::thread writer([&] { written = write_stream(writing.get()); });
    const auto read = read_stream(reading.get());
    writer.join();
    assert_true(written.has_value());
    if (!read)
        test::fail(read.error().message());
}

void a_reader_that_is_gone_ends_the_writer(void ** /*state*/) {
    int ends[2] = {-1, -1};
    assert_int_equal(pipe(ends), 0);
    const UniqueFd writing(ends[1]);
    static_cast<void>(signal(SIGPIPE, SIG_IGN));
    UniqueFd(ends[0]).reset();
    const auto written = write_stream(writing.get());
    assert_false(written.has_value());
    assert_int_equal(written.error().code, EPIPE);
}

void every_cut_is_found(void ** /*state*/) {
    const auto bytes = whole();
    for (std::size_t length = 0; length < bytes.size(); length += length < 300 ? 1 : 65'521) {
        const auto file = file_with(std::span(bytes).first(length));
        const auto read = read_stream(file.get());
        assert_false(read.has_value());
        assert_true(read.error().message().find("record") != std::string::npos);
    }
}

void every_changed_bit_is_found(void ** /*state*/) {
    auto bytes = whole();
    std::mt19937 random(11); // NOLINT(cert-msc32-c,cert-msc51-cpp): the same in every run
    for (int round = 0; round < (test::is_short() ? 60 : 300); ++round) {
        // Half of them in the small records at the begin.
        const auto at = random() % (round % 2 == 0 ? 200 : bytes.size());
        const auto bit = static_cast<std::byte>(1U << random() % 8);
        bytes[at] ^= bit;
        const auto file = file_with(bytes);
        const auto read = read_stream(file.get());
        if (read)
            test::fail("a changed bit was not found at " + std::to_string(at));
        bytes[at] ^= bit;
    }
}

void a_cancelled_writer_stops(void ** /*state*/) {
    const UniqueFd file(memfd_create("image", MFD_CLOEXEC));
    Writer writer(file.get(), Deadline::after(std::chrono::seconds(10)), [](std::uint64_t) -> Expected<void> {
        return failure("go on with", "the image", "nobody wants it", ECANCELED);
    });
    assert_true(writer.put(RecordType::stream, StreamRecord{}).has_value());
    const auto flushed = writer.flush();
    assert_false(flushed.has_value());
    assert_int_equal(flushed.error().code, ECANCELED);
}

void a_mapped_file_has_the_same_bytes(void **) {
    const UniqueFd file(memfd_create("image", MFD_CLOEXEC));
    auto mapped = MappedFile::make(file.get(), MappedFile::kStep);
    assert_true(mapped.has_value());
    Writer writer(*mapped, always);
    assert_true(write_records(writer).has_value());
    assert_true(content_of(file) == whole());
    assert_int_equal(writer.bytes(), content_of(file).size());
}

void what_is_not_ended_is_no_record(void **) {
    const UniqueFd file(memfd_create("image", MFD_CLOEXEC));
    auto mapped = MappedFile::make(file.get(), MappedFile::kStep);
    assert_true(mapped.has_value());
    const UniqueFd stream(memfd_create("image", MFD_CLOEXEC));
    Writer writers[] = {{*mapped, always}, {stream.get(), Deadline::after(std::chrono::seconds(10)), always}};
    for (auto &writer : writers) {
        const auto room = writer.begin(RecordType::content, kPiece);
        assert_true(room.has_value() && room->size() == kPiece);
        std::ranges::fill(*room, std::byte{'x'});
        assert_true(write_records(writer).has_value());
    }
    assert_true(content_of(file) == whole());
    assert_true(content_of(stream) == whole());
}

void a_mapped_file_grows_in_steps(void **) {
    const UniqueFd file(memfd_create("image", MFD_CLOEXEC));
    auto mapped = MappedFile::make(file.get(), MappedFile::kStep + 1);
    assert_true(mapped.has_value());
    assert_true(mapped->memory().empty());
    for (std::size_t step = 1; step <= 2; ++step) {
        assert_true(mapped->grow(1).has_value());
        assert_int_equal(mapped->memory().size(), step * MappedFile::kStep);
        mapped->memory().back() = std::byte{'x'};
    }
    const auto beyond = mapped->grow(1);
    assert_false(beyond.has_value());
    assert_int_equal(beyond.error().code, EFBIG);
}

void files_that_cannot_be_mapped_are_told(void **) {
    const UniqueFd empty(memfd_create("image", MFD_CLOEXEC));
    assert_true(MappedFile::fits(empty.get()));
    assert_false(MappedFile::fits(file_with(pattern(1)).get()));
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const UniqueFd reading(ends[0]);
    const UniqueFd writing(ends[1]);
    assert_false(MappedFile::fits(writing.get()));
    const UniqueFd read_only(open(fmt::format("/proc/self/fd/{}", empty.get()).c_str(), O_RDONLY));
    assert_true(read_only.get() >= 0);
    assert_false(MappedFile::fits(read_only.get()));
    const auto mapped = MappedFile::make(writing.get(), MappedFile::kStep);
    assert_false(mapped.has_value());
    assert_int_equal(mapped.error().code, EINVAL);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(what_was_written_is_read),
        cmocka_unit_test(a_pipe_will_do),
        cmocka_unit_test(a_reader_that_is_gone_ends_the_writer),
        cmocka_unit_test(every_cut_is_found),
        cmocka_unit_test(every_changed_bit_is_found),
        cmocka_unit_test(a_cancelled_writer_stops),
        cmocka_unit_test(a_mapped_file_has_the_same_bytes),
        cmocka_unit_test(what_is_not_ended_is_no_record),
        cmocka_unit_test(a_mapped_file_grows_in_steps),
        cmocka_unit_test(files_that_cannot_be_mapped_are_told),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
