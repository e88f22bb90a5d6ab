// SPDX-License-Identifier: GPL-2.0-or-later
// Packets over the session's socket.
#include "pair.hpp"

#include <map>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/un.h>
#include <unistd.h>

namespace {

using namespace singularity::test;
namespace channel = singularity::channel;
using channel::Link;
using channel::PacketType;
using singularity::UniqueFd;

struct Links {
    Link ours;
    Link theirs;
};

Links links() {
    auto [a, b] = socket_pair();
    return {need(Link::adopt(std::move(a))), need(Link::adopt(std::move(b)))};
}

void packets_carry_descriptors(void **) {
    auto [ours, theirs] = links();
    const UniqueFd memory(memfd_create("test", MFD_CLOEXEC));
    assert_int_equal(write(memory.get(), "hello", 5), 5);
    const std::string text(channel::kPacketLimit, 'x');
    const int descriptor = memory.get();
    need(ours.send(PacketType::descriptor, 7, std::as_bytes(std::span(text)), {&descriptor, 1}, soon()));
    need(ours.send(PacketType::output, 8, {}, {}, soon()));
    assert_int_equal(ours.sent(), 2);
    auto packet = need(theirs.receive(soon()));
    assert_int_equal(packet.type, PacketType::descriptor);
    assert_int_equal(packet.ticket, 7);
    assert_int_equal(packet.body.size(), text.size());
    assert_int_equal(packet.descriptors.size(), 1);
    char read[6] = {};
    assert_int_equal(pread(packet.descriptors[0].get(), read, 5, 0), 5);
    assert_string_equal(read, "hello");
    assert_int_equal(fcntl(packet.descriptors[0].get(), F_GETFD), FD_CLOEXEC);
    assert_int_equal(need(theirs.receive(soon())).type, PacketType::output);
    assert_false(need(theirs.receive()).has_value());
}

void a_hang_up_is_waited_for(void **) {
    auto [ours, theirs] = links();
    need(theirs.send(PacketType::output, 1, {}, {}, soon()));
    assert_false(ours.await_hang_up(singularity::Deadline::after(std::chrono::milliseconds(20))));
    std::thread other([&theirs] { theirs.close(); });
    assert_true(ours.await_hang_up(soon()));
    other.join();
    // What it has sent before is there to be read.
    assert_int_equal(need(ours.receive(soon())).type, PacketType::output);
}

void packets_have_limits(void **) {
    auto [ours, theirs] = links();
    const std::vector<std::byte> large(channel::kPacketLimit + 1);
    const auto refused = ours.send(PacketType::output, 0, large, {}, soon());
    assert_false(refused.has_value());
    assert_int_equal(refused.error().code, EMSGSIZE);
}

// Raw packets that Link::send would never make. Their descriptors are closed, not leaked.
void broken_packets_are_refused(void **) {
    const auto refused = [](std::span<const std::byte> raw, std::string_view why) {
        auto [a, b] = socket_pair();
        auto theirs = need(Link::adopt(std::move(b)));
        assert_int_equal(send(a.get(), raw.data(), raw.size(), 0), raw.size());
        const auto packet = theirs.receive();
        if (packet)
            fail("a broken packet was accepted");
        expect_contains(packet.error().message(), why);
        assert_int_equal(packet.error().code, EPROTO);
    };
    channel::PacketHeader header{.type = 1, .size = 0, .ticket = 0};
    refused(bytes_of(header).first(15), "a packet of 15 bytes");
    header.size = 1;
    refused(bytes_of(header), "its body has 1");
    header.size = ~0U;
    refused(bytes_of(header), "its body has 4294967295");
    const std::vector<std::byte> large(channel::kPacketLimit + sizeof(header) + 1);
    refused(large, "more than");
}

void too_many_descriptors_are_refused_and_closed(void **) {
    auto [a, b] = socket_pair();
    auto theirs = need(Link::adopt(std::move(b)));
    constexpr std::size_t kMany = 64;
    UniqueFd ends[2];
    int pipe_ends[2];
    assert_int_equal(pipe2(pipe_ends, O_CLOEXEC), 0);
    ends[0].reset(pipe_ends[0]);
    ends[1].reset(pipe_ends[1]);
    channel::PacketHeader header{.type = 2, .size = 0, .ticket = 0};
    iovec part{&header, sizeof(header)};
    alignas(cmsghdr) char control[CMSG_SPACE(kMany * sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    auto *rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(kMany * sizeof(int));
    for (std::size_t i = 0; i < kMany; ++i)
        std::memcpy(CMSG_DATA(rights) + i * sizeof(int), &pipe_ends[1], sizeof(int));
    assert_true(sendmsg(a.get(), &message, 0) >= 0);
    const auto packet = theirs.receive();
    assert_false(packet.has_value());
    assert_int_equal(packet.error().code, EPROTO);
    // The pipe's reader sees the end once no copy of the writer is left anywhere.
    ends[1].reset();
    char byte = 0;
    assert_int_equal(fcntl(ends[0].get(), F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(read(ends[0].get(), &byte, 1), 0);
}

void hang_up_is_an_error(void **) {
    auto [ours, theirs] = links();
    need(ours.send(PacketType::farewell, 1, {}, {}, soon()));
    ours.shut_down();
    assert_int_equal(need(theirs.receive(soon())).type, PacketType::farewell);
    const auto packet = theirs.receive(soon());
    assert_false(packet.has_value());
    assert_int_equal(packet.error().code, ECONNRESET);
    assert_false(theirs.send(PacketType::output, 0, {}, {}, soon()).has_value());
}

void full_socket_ends_at_the_deadline(void **) {
    auto [ours, theirs] = links();
    const std::vector<std::byte> body(channel::kPacketLimit);
    singularity::Expected<void> sent;
    for (int i = 0; i < 1000 && sent; ++i)
        sent = ours.send(PacketType::output, 0, body, {},
                         singularity::Deadline::after(std::chrono::milliseconds(10)));
    assert_false(sent.has_value());
    assert_int_equal(sent.error().code, ETIMEDOUT);
    assert_int_equal(need(theirs.receive(soon())).body.size(), body.size());
    need(ours.send(PacketType::output, 0, body, {}, soon()));
}

void struct_bodies_have_their_size(void **) {
    channel::Packet packet;
    packet.body.resize(sizeof(channel::Hello) - 1);
    assert_false(channel::struct_of<channel::Hello>(packet).has_value());
    packet.body.resize(sizeof(channel::Hello));
    assert_true(channel::struct_of<channel::Hello>(packet).has_value());
}

// Processes of different devices never have the same window, and each device has one, as long as there are as
// many windows as devices.
void windows_are_of_devices(void **) {
    for (const std::uint32_t devices : {1U, 2U, 3U, 8U, 16U, 26U}) {
        const channel::WindowArea area{
            .begin = 0x2000'0000'0000, .end = 0x5400'0000'0000, .window_size = std::uint64_t{2} << 40};
        std::map<std::uint64_t, std::uint32_t> owners;
        for (std::uint32_t device = 0; device < devices; ++device)
            for (std::uint64_t n = 0; n < 100; ++n) {
                const auto window = channel::window_of(area, {.number = device, .of = devices}, n);
                assert_true(window >= area.begin && window + area.window_size <= area.end);
                assert_int_equal((window - area.begin) % area.window_size, 0);
                assert_int_equal(owners.try_emplace(window, device).first->second, device);
            }
        assert_int_equal(owners.size(), area.windows());
    }
    const channel::WindowArea small{.begin = 10, .end = 40, .window_size = 10};
    // A number that is none, or that is not alone.
    assert_int_equal(channel::window_of(small, {.number = 7, .of = 0}, 5), 10 + (7 % 3) * 10);
    assert_int_equal(channel::window_of(small, {.number = ~0U, .of = ~0U}, ~0ULL), 10 + (~0U % 3) * 10);
    assert_int_equal(channel::window_of({.begin = 0, .end = 10, .window_size = 20}, {}, 1), 0);
    assert_int_equal(channel::window_of({}, {}, 1), 0);
}

void connect_says_what_is_wrong(void **) {
    const auto absent = Link::connect("/nonexistent/proxy.sock", soon());
    assert_false(absent.has_value());
    expect_contains(absent.error().message(), "/nonexistent/proxy.sock");
    assert_int_equal(absent.error().code, ENOENT);
    const auto long_path = Link::connect(std::string(200, 'a'), soon());
    assert_false(long_path.has_value());
    expect_contains(long_path.error().message(), "107");
}

void handshake(void **) {
    auto [ours, theirs] = links();
    const auto server = need(channel::ServerEnd::create(small_geometry()));
    std::jthread daemon([&theirs, &server] {
        auto hello = need(channel::struct_of<channel::Hello>(need(theirs.receive(soon()))));
        channel::Refusal refusal;
        refusal.reason = std::to_underlying(channel::RefusalReason::window_taken);
        refusal.area.begin = hello.window;
        refusal.text.fill('x'); // no NUL: the client must not run over its end
        need(theirs.send_struct(PacketType::refusal, 0, refusal, soon()));
        hello = need(channel::struct_of<channel::Hello>(need(theirs.receive(soon()))));
        channel::Welcome welcome;
        welcome.geometry = small_geometry();
        welcome.window = hello.window;
        const int fd = server->segment_fd();
        need(theirs.send(PacketType::welcome, 0, bytes_of(welcome), {&fd, 1}, soon()));
    });
    auto answer = need(channel::say_hello(ours, {.window = 1 << 20}, soon()));
    assert_true(answer.refusal.has_value());
    assert_false(answer.welcome.has_value());
    assert_int_equal(answer.refusal->area.begin, 1 << 20);
    assert_int_equal(std::string(answer.refusal->text.data()).size(), 511);
    answer = need(channel::say_hello(ours, {.window = 2 << 20}, soon()));
    assert_true(answer.welcome.has_value());
    assert_int_equal(answer.welcome->window, 2 << 20);
    need(channel::Segment::map(answer.segment.get(), answer.welcome->geometry));
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(packets_carry_descriptors),
        cmocka_unit_test(a_hang_up_is_waited_for),
        cmocka_unit_test(packets_have_limits),
        cmocka_unit_test(broken_packets_are_refused),
        cmocka_unit_test(too_many_descriptors_are_refused_and_closed),
        cmocka_unit_test(hang_up_is_an_error),
        cmocka_unit_test(full_socket_ends_at_the_deadline),
        cmocka_unit_test(struct_bodies_have_their_size),
        cmocka_unit_test(windows_are_of_devices),
        cmocka_unit_test(connect_says_what_is_wrong),
        cmocka_unit_test(handshake),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
