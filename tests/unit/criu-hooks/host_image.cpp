// SPDX-License-Identifier: GPL-2.0-or-later
// The parts of host images that need no CRIU: the wire format of its images, and what its log says.
#include "cmocka.hpp"
#include "common/unique_fd.hpp"
#include "criu-hooks/host/connections.hpp"
#include "file.hpp"
#include "fuzz/memory_directory.hpp"
#include "interrupted.hpp"
#include "log.hpp"
#include "pages.hpp"
#include "places.hpp"
#include "records.hpp"
#include "verify.hpp"
#include "wire.hpp"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

namespace {

using namespace singularity;
using host::Bytes;

Bytes bytes(const std::string &text) { return std::as_bytes(std::span(text)); }

void test_fields(void **) {
    // 1: 150, 2: "abc", 3: fixed32 1, 4: packed {1, 300}, 4 again: 7
    const std::string message("\x08\x96\x01\x12\x03"
                              "abc\x1d\x01\x00\x00\x00\x22\x03\x01\xac\x02\x20\x07",
                              20);
    const auto fields = host::fields_of(bytes(message));
    assert_true(fields.has_value());
    assert_int_equal(fields->size(), 5);
    assert_int_equal(host::find(*fields, 1)->value, 150);
    test::expect_equal(host::find(*fields, 2)->text(), "abc");
    assert_int_equal(host::find(*fields, 3)->value, 1);
    const auto numbers = host::repeated(*fields, 4);
    assert_true(numbers.has_value() && *numbers == std::vector<std::uint64_t>({1, 300, 7}));
    assert_null(host::find(*fields, 5));
}

void test_replaced(void **) {
    const std::string message("\x08\x96\x01\x12\x03"
                              "abc",
                              8);
    const auto fields = host::fields_of(bytes(message));
    assert_true(fields.has_value());
    const std::string number = host::with_number(bytes(message), *host::find(*fields, 1), 70000);
    const std::string text = host::with_bytes(bytes(number), host::fields_of(bytes(number))->at(1), "longer");
    const auto changed = host::fields_of(bytes(text));
    assert_true(changed.has_value());
    assert_int_equal(host::find(*changed, 1)->value, 70000);
    test::expect_equal(host::find(*changed, 2)->text(), "longer");
}

void test_malformed(void **) {
    for (const std::string &message :
         {std::string("\x08"), std::string("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
          std::string("\x12\x05"
                      "abc"),
          std::string("\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f"), std::string("\x1d\x01"),
          std::string("\x0b"), std::string("\x00\x00", 2)})
        assert_false(host::fields_of(bytes(message)).has_value());
}

void test_random_bytes(void **) {
    std::mt19937 chance(7); // NOLINT(cert-msc51-cpp): the same bytes every time
    for (int round = 0; round < 20000; ++round) {
        std::string message(chance() % 64, '\0');
        for (char &each : message)
            each = static_cast<char>(chance());
        const auto fields = host::fields_of(bytes(message));
        if (!fields)
            continue;
        for (const host::Field &each : *fields)
            assert_true(each.begin < each.end && each.end <= message.size());
    }
}

// A message of one number per field, in the order given.
std::string numbers(std::initializer_list<std::pair<std::uint32_t, std::uint64_t>> fields) {
    std::string message;
    for (const auto &[number, value] : fields)
        message += host::encoded_varint(std::uint64_t{number} << 3U) + host::encoded_varint(value);
    return message;
}
std::string part(std::uint32_t number, const std::string &content) {
    return host::encoded_varint(std::uint64_t{number} << 3U | 2U) + host::encoded_varint(content.size()) +
           content;
}

constexpr std::uint64_t kInterrupted = -std::uint64_t{4}; // EINTR

// As CRIU writes it: a thread that slept and is told EINTR, with a set of blocked signals and signals that
// wait.
std::string core_of(std::uint64_t blocked, const std::string &waiting) {
    const std::string registers = numbers({{7, 1},
                                           {8, 0x3000},
                                           {11, kInterrupted},
                                           {13, 0x1000},
                                           {14, 5},
                                           {15, 1},
                                           {16, 230},
                                           {17, 0x7002},
                                           {18, 0x33},
                                           {20, 9}});
    return numbers({{1, 1}}) + part(2, numbers({{1, 77}}) + part(2, registers)) +
           part(5, numbers({{1, 0}, {6, blocked}}) + waiting);
}

void test_call_again(void **) {
    const host::CallRegisters sleeping{.rax = kInterrupted,
                                       .orig_rax = 35,
                                       .rip = 0x7002,
                                       .rdi = 0x1000,
                                       .rsi = 0x2000,
                                       .rdx = 1,
                                       .r10 = 2,
                                       .cs = 0x33};
    host::CallRegisters expected = sleeping;
    expected.rax = 35;
    expected.rip = 0x7000;
    expected.rdi = 0x2000; // for the rest of its time
    assert_true(host::to_call_again(sleeping) == expected);
    host::CallRegisters other = sleeping;
    other.rsi = 0; // nobody knows the rest
    assert_int_equal(host::to_call_again(other)->rdi, 0x1000);
    other = sleeping;
    other.rax = 0; // it has ended
    assert_false(host::to_call_again(other).has_value());
    other = sleeping;
    other.orig_rax = ~std::uint64_t{0}; // in no call
    assert_false(host::to_call_again(other).has_value());
    other.orig_rax = 42; // connect: that one goes on in the kernel
    assert_false(host::to_call_again(other).has_value());
    other = sleeping;
    other.cs = 0x23; // 32-bit code
    assert_false(host::to_call_again(other).has_value());
}

void test_call_again_in_core(void **) {
    const std::string core = core_of(0, "");
    const auto changed = host::core_to_call_again(bytes(core), 0);
    assert_true(changed.has_value() && changed->has_value());
    const auto fields = host::fields_of(bytes(**changed));
    const auto x86 = host::fields_of(host::find(*fields, 2)->bytes);
    assert_int_equal(host::find(*x86, 1)->value, 77);
    const auto registers = host::fields_of(host::find(*x86, 2)->bytes);
    assert_int_equal(registers->size(), 10);
    for (const auto &[number, value] :
         std::initializer_list<std::pair<std::uint32_t, std::uint64_t>>{{7, 1},
                                                                        {8, 0x3000},
                                                                        {11, 230},
                                                                        {13, 0x3000},
                                                                        {14, 5},
                                                                        {15, 1},
                                                                        {16, 230},
                                                                        {17, 0x7000},
                                                                        {20, 9}})
        assert_int_equal(host::find(*registers, number)->value, value);

    // Signal 10: its own or its process', blocked or not.
    const std::string user_1(std::string("\x0a\0\0\0", 4) + std::string(124, '\0'));
    const std::string queue = part(9, part(1, part(1, user_1)));
    constexpr std::uint64_t kUser1 = 1U << 9U;
    const auto again = [](const std::string &text, std::uint64_t of_process) {
        const auto result = host::core_to_call_again(bytes(text), of_process);
        assert_true(result.has_value());
        return result->has_value();
    };
    assert_false(again(core_of(0, queue), 0));
    assert_true(again(core_of(kUser1, queue), 0));
    assert_false(again(core, kUser1));
    assert_true(again(core_of(kUser1, ""), kUser1));
    assert_false(host::core_to_call_again(bytes(core.substr(0, core.size() - 1)), 0).has_value());
}

// Fields of messages.
std::string number(std::uint32_t field, std::uint64_t value) {
    return host::encoded_varint(std::uint64_t{field} << 3U) + host::encoded_varint(value);
}
std::string text(std::uint32_t field, const std::string &value) {
    return host::encoded_varint(std::uint64_t{field} << 3U | 2U) + host::encoded_varint(value.size()) + value;
}

void write(const test::MemoryDirectory &images, const std::string &name, host::Magic magic,
           const std::vector<std::string> &messages) {
    assert_true(host::write_file_at(images.fd(), name, host::framed(magic, messages)).has_value());
}

template <class T>
std::string why(const Expected<T> &result) {
    return result ? "nothing is wrong" : result.error().message();
}

// A field in memory is much larger than in a message.
void test_many_fields(void **) {
    std::string message;
    for (int i = 0; i < 1 << 18; ++i)
        message += number(1, 0);
    assert_true(host::fields_of(bytes(message)).has_value());
    test::expect_contains(why(host::fields_of(bytes(message + number(1, 0)))), "more than");
}

// A length is not believed before there are so many bytes.
void test_promised_records(void **) {
    const test::MemoryDirectory images;
    std::string file = host::framed(host::Magic::kCore, {});
    const std::uint32_t size = 16U << 20U;
    file.append(reinterpret_cast<const char *>(&size), sizeof(size));
    assert_true(host::write_file_at(images.fd(), "core-1.img", file).has_value());
    auto reader = host::RecordReader::open(images.fd(), "core-1.img", host::Magic::kCore);
    assert_true(reader.has_value());
    test::expect_contains(why(reader->next()), "it is cut off");
}

// Pages that the file of pages does not have are not counted: there would be no end of windows.
void test_promised_pages(void **) {
    const test::MemoryDirectory images;
    assert_true(host::write_file_at(images.fd(), "pages-1.img", "").has_value());
    assert_int_equal(truncate((images.path() / "pages-1.img").c_str(), 2 << 20U), 0);
    const auto cuts = [&](std::uint64_t address, std::uint64_t pages) {
        write(images, "pagemap-1.img", host::Magic::kPagemap,
              {number(1, 1), number(1, 0x10000000) + number(5, 256) + number(4, 4),
               number(1, address) + number(5, pages) + number(4, 4)});
        return host::page_cuts(images.fd());
    };
    const auto page_size = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    const auto left = (2U << 20U) / page_size - 256;
    const auto good = cuts(0x20000000, left);
    assert_true(good.has_value() && good->at("pages-1.img").size() >= 1);
    test::expect_contains(why(cuts(0x20000000, left + 1)), "which has 2097152");
    test::expect_contains(why(cuts(0x1000, std::uint64_t{1} << 51U)), "which has 2097152");
}

// CRIU reads 32 bits of an id, and would open another process's file than the one that was looked at.
void test_ids_of_processes(void **) {
    const test::MemoryDirectory images;
    host::Context context;
    context.uid = context.gid = 1000;
    context.no_new_privileges = true;
    std::string ids;
    for (std::uint32_t field = 1; field <= 8; ++field)
        ids += number(field, 1000);
    const auto with = [&](std::uint64_t process, std::uint64_t thread, std::uint64_t no_new_privileges) {
        const auto core = text(5, text(10, ids + number(18, no_new_privileges)));
        for (const auto id : {process, thread})
            write(images, "core-" + std::to_string(id) + ".img", host::Magic::kCore, {core});
        write(images, "pstree.img", host::Magic::kProcesses, {number(1, process) + number(5, thread)});
        return host::verify_credentials(context, images.fd());
    };
    assert_true(with(7, 7, 1).has_value());
    test::expect_contains(why(with(0x100000007, 7, 1)), "which none can have");
    test::expect_contains(why(with(7, 0x100000007, 1)), "which none can have");
    test::expect_contains(why(with(7, 0, 1)), "which none can have");
    test::expect_contains(why(with(7, 7, 0x100000000)), "could gain privileges");
}

void test_names_stay_below_their_mounts(void **) {
    const host::Places places{{1, {.mount_point = "/home", .outside = "/data/home"}},
                              {2, {.mount_point = "./", .outside = "/data/root"}},
                              {3, {.mount_point = "/tmp", .outside = std::nullopt}}};
    const auto place = [&](std::uint64_t mount, const char *name) {
        const auto path = host::present_path(places, mount, name);
        assert_true(path.has_value());
        return *path ? (*path)->string() : std::string("none");
    };
    test::expect_equal(place(1, "/home/alice/log"), "/data/home/alice/log");
    test::expect_equal(place(1, "home/alice/../log"), "/data/home/alice/../log");
    test::expect_equal(place(1, "/home"), "/data/home");
    test::expect_equal(place(1, "/home///etc/shadow"), "/data/home/etc/shadow");
    test::expect_equal(place(2, "///etc/shadow"), "/data/root/etc/shadow");
    test::expect_equal(place(3, "/../../etc"), "none");
    test::expect_equal(place(4, "/home/alice"), "none");
    for (const auto &[mount, name] :
         {std::pair(1U, "/home/../etc/shadow"), std::pair(1U, "/home/a/../../x"), std::pair(2U, "/../x"),
          std::pair(1U, "/homes/x"), std::pair(1U, "/etc/shadow"), std::pair(1U, "")})
        test::expect_contains(why(host::present_path(places, mount, name)), "not of this job");
}

void test_log(void **) {
    const std::string why = host::explain(
        "(00.1) Dumping\n"
        "(00.2) Error (criu/rlimit.c:20): rlimit: Can't setup RLIMIT_NOFILE for self\n"
        "(00.3)     27: Error (criu/files-reg.c:2175): File a\x1b[31m has bad size 5 (expect 4)\n"
        "(00.4) Error (criu/cr-dump.c:1975): Dumping FAILED.\n");
    test::expect_contains(why, "process 27 of the node: File a");
    test::expect_contains(why, "has bad size 5 (expect 4)");
    test::expect_contains(why, "restore an older checkpoint");
    assert_false(why.contains('\x1b') || why.contains("RLIMIT_NOFILE") || why.contains("FAILED"));
    test::expect_equal(host::explain("all is well\n"), "");
}

// A criu that was killed has written no error. Names of the user's files are in its log.
void test_log_without_error(void **) {
    test::expect_equal(host::last_words(""), "");
    test::expect_equal(host::last_words("\n \n\n"), "");
    test::expect_equal(host::last_words("one"), "one");
    test::expect_equal(host::last_words("one\ntwo\n\nthree\nfour"), "two | three | four");
    const std::string hostile = host::last_words("(00.1) Dumping a\x1b]0;title\x07\xff\r" +
                                                 std::string(1U << 20U, 'x') + "\x1b[31m\nlater\n");
    test::expect_contains(hostile, "(00.1) Dumping a\\x1b]0;title\\x07\\xff");
    test::expect_contains(hostile, "x\\x1b[31m | later");
    assert_true(hostile.size() < 1000);
    assert_true(std::ranges::none_of(
        hostile, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }));

    const UniqueFd log(memfd_create("log", MFD_CLOEXEC));
    const UniqueFd complaints(memfd_create("complaints", MFD_CLOEXEC));
    assert_true(log && complaints);
    test::expect_equal(host::summary_of({log.get(), complaints.get(), -1}, ""),
                       "criu gave no reason, and wrote nothing");
    constexpr std::string_view kLine = "(00.1) Seizing 27\x1b[0m\n";
    assert_int_equal(::write(log.get(), kLine.data(), kLine.size()), kLine.size());
    test::expect_equal(host::summary_of({log.get(), complaints.get()}, ""),
                       "criu gave no reason; the last that it wrote: (00.1) Seizing 27\\x1b[0m");
    constexpr std::string_view kError = "Error (criu/util.c:1): no such thing\n";
    assert_int_equal(::write(complaints.get(), kError.data(), kError.size()), kError.size());
    test::expect_equal(host::summary_of({log.get(), complaints.get()}, ""), "no such thing");
}

// A file's message of CRIU's with an internet socket: family, protocol, state, ports and addresses.
std::string internet_socket(int family, int protocol, int state,
                            std::pair<std::uint32_t, std::uint32_t> ports,
                            const std::vector<std::uint32_t> &own, const std::vector<std::uint32_t> &peer) {
    std::string socket =
        number(3, static_cast<std::uint64_t>(family)) + number(5, static_cast<std::uint64_t>(protocol)) +
        number(6, static_cast<std::uint64_t>(state)) + number(7, ports.first) + number(8, ports.second);
    for (const auto word : own)
        socket += number(11, word);
    for (const auto word : peer)
        socket += number(12, word);
    return text(4, socket);
}

void test_connections(void **) {
    test::MemoryDirectory images;
    const std::uint32_t one = htonl(0x0a400001);
    const std::uint32_t two = htonl(0x0a400002);
    const std::uint32_t loopback = htonl(1);
    write(images, "files.img", host::Magic::kFiles,
          {internet_socket(AF_INET, IPPROTO_TCP, TCP_ESTABLISHED, {4711, 80}, {one}, {two}),
           internet_socket(AF_INET, IPPROTO_TCP, TCP_LISTEN, {80, 0}, {0}, {0}),
           internet_socket(AF_INET6, IPPROTO_UDP, TCP_ESTABLISHED, {53, 54}, {0, 0, 0, loopback},
                           {0, 0, 0, loopback}),
           internet_socket(AF_INET6, IPPROTO_TCP, TCP_CLOSE_WAIT, {1, 2}, {0, 0, htonl(0xffff), one},
                           {0, 0, htonl(0xffff), two}),
           internet_socket(AF_INET, IPPROTO_ICMP, TCP_ESTABLISHED, {0, 0}, {one}, {two})});
    const auto found = host::saved_connections(images.fd());
    assert_true(found.has_value());
    assert_int_equal(found->size(), 3);
    assert_int_equal(found->at(0).protocol, IPPROTO_TCP);
    assert_int_equal(found->at(0).own_port, 4711);
    assert_int_equal(found->at(0).peer_port, 80);
    // Those of IPv4 are the same, whatever their socket is.
    assert_memory_equal(&found->at(0).own, &found->at(2).own, sizeof(in6_addr));
    assert_memory_equal(&found->at(0).peer, &found->at(2).peer, sizeof(in6_addr));
    assert_int_equal(found->at(1).protocol, IPPROTO_UDP);
    assert_memory_equal(&found->at(1).peer, &in6addr_loopback, sizeof(in6_addr));
    test::MemoryDirectory damaged;
    write(damaged, "files.img", host::Magic::kFiles,
          {internet_socket(AF_INET6, IPPROTO_TCP, TCP_ESTABLISHED, {1, 2}, {one}, {two})});
    test::expect_contains(why(host::saved_connections(damaged.fd())), "no whole address");
}

} // namespace

int main() {
    const CMUnitTest tests[] = {cmocka_unit_test(test_fields),
                                cmocka_unit_test(test_replaced),
                                cmocka_unit_test(test_malformed),
                                cmocka_unit_test(test_random_bytes),
                                cmocka_unit_test(test_call_again),
                                cmocka_unit_test(test_call_again_in_core),
                                cmocka_unit_test(test_connections),
                                cmocka_unit_test(test_many_fields),
                                cmocka_unit_test(test_promised_records),
                                cmocka_unit_test(test_promised_pages),
                                cmocka_unit_test(test_ids_of_processes),
                                cmocka_unit_test(test_names_stay_below_their_mounts),
                                cmocka_unit_test(test_log),
                                cmocka_unit_test(test_log_without_error)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
