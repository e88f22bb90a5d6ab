// SPDX-License-Identifier: GPL-2.0-or-later
// Packets through a socket, of any size: those that no datagram takes lie in a memfd of whoever sends them.
#include "cmocka.hpp"
#include "common/unique_fd.hpp"
#include "node/init_messages.hpp"
#include "node/packet.hpp"
#include "node/seqpacket.hpp"

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

using namespace singularity::node;
using singularity::UniqueFd;
using singularity::test::expect_contains;
using singularity::test::expect_equal;

constexpr int kEverySeal = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

struct Ends {
    UniqueFd here;
    UniqueFd there;

    explicit Ends(bool wide = true) {
        std::array<int, 2> pair{};
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.data()), 0);
        here = UniqueFd(pair[0]);
        there = UniqueFd(pair[1]);
        if (wide)
            widen(here.get());
    }
};

// Text that shows where a piece of it is missing, or is there twice.
std::string content(std::size_t size) {
    std::string out;
    while (out.size() < size)
        out += std::to_string(out.size()) + ',';
    out.resize(size);
    return out;
}

UniqueFd memory_of(std::string_view bytes, int seals) {
    UniqueFd out(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    assert_int_equal(write(out.get(), bytes.data(), bytes.size()), bytes.size());
    assert_int_equal(fcntl(out.get(), F_ADD_SEALS, seals), 0);
    return out;
}

void packets_of_any_size_pass(void **) {
    for (const bool wide : {true, false})
        for (const std::size_t size :
             {std::size_t{1}, std::size_t{300} << 10, kDatagramLimit, kDatagramLimit + 1, kPacketLimit}) {
            const Ends ends(wide);
            const auto sent = content(size);
            std::array<int, 2> pipe{};
            assert_int_equal(pipe2(pipe.data(), O_CLOEXEC), 0);
            const UniqueFd reading(pipe[0]);
            const UniqueFd writing(pipe[1]);
            assert_int_equal(send_packet(ends.here.get(), sent, {reading.get(), writing.get()}), 0);
            assert_int_equal(send_packet(ends.here.get(), "next"), 0);
            Packet packet;
            assert_true(receive_packet(ends.there.get(), packet) == Received::packet);
            assert_true(packet.bytes == sent);
            assert_int_equal(packet.descriptors.size(), 2);
            struct stat here{};
            struct stat there{};
            assert_int_equal(fstat(writing.get(), &here), 0);
            assert_int_equal(fstat(packet.descriptors.all()[1], &there), 0);
            assert_true(here.st_ino == there.st_ino);
            assert_true(receive_packet(ends.there.get(), packet) == Received::packet);
            expect_equal(packet.bytes, "next");
            assert_int_equal(packet.descriptors.size(), 0);
        }
    const Ends ends;
    assert_int_equal(send_packet(ends.here.get(), content(kPacketLimit + 1)), EMSGSIZE);
    assert_int_equal(send_datagram(ends.here.get(), content(kDatagramLimit + 1), {}), EMSGSIZE);
}

// All of them may bring as many descriptors as small ones.
void descriptors_are_counted_without_the_memfd(void **) {
    const Ends ends;
    Packet packet;
    const std::vector<int> most(kTrustedDescriptorLimit, ends.here.get());
    const auto large = content(kDatagramLimit + 1);
    assert_int_equal(send_packet(ends.here.get(), large, most), 0);
    assert_true(receive_packet(ends.there.get(), packet, {.descriptors = most.size()}) == Received::packet);
    assert_int_equal(packet.descriptors.size(), most.size());
    const std::span few(most.data(), kDescriptorLimit);
    assert_int_equal(send_packet(ends.here.get(), large, few), 0);
    assert_true(receive_packet(ends.there.get(), packet) == Received::packet);
    const std::span one_more(most.data(), kDescriptorLimit + 1);
    for (const auto &bytes : {large, std::string("small")}) {
        assert_int_equal(send_packet(ends.here.get(), bytes, one_more), 0);
        assert_true(receive_packet(ends.there.get(), packet) == Received::failed);
        expect_contains(packet.refusal, "more descriptors came with it than the 4 that it may have");
    }
}

// Whoever sends what says that it is elsewhere, with these descriptors.
std::string refusal_of(std::uint64_t size, std::span<const int> descriptors, const Allowed &allowed = {}) {
    const Ends ends;
    assert_int_equal(send_datagram(ends.here.get(), encode(Elsewhere{.size = size}, 7), descriptors), 0);
    Packet packet;
    assert_true(receive_packet(ends.there.get(), packet, allowed) == Received::failed);
    assert_int_equal(errno, EBADMSG);
    return packet.refusal;
}

void only_what_is_final_is_read(void **) {
    const auto good = memory_of("12345", kEverySeal);
    const auto refused = [](int fd, std::uint64_t size = 5) { return refusal_of(size, {{fd}}); };
    for (const int seals : {0, F_SEAL_SEAL, kEverySeal & ~F_SEAL_WRITE, kEverySeal & ~F_SEAL_GROW,
                            kEverySeal & ~F_SEAL_SHRINK, kEverySeal & ~F_SEAL_SEAL})
        expect_contains(refused(memory_of("12345", seals).get()),
                        "its memfd has the seals " + std::to_string(seals) +
                            "; add F_SEAL_WRITE, F_SEAL_GROW, F_SEAL_SHRINK and F_SEAL_SEAL: 15");
    expect_equal(refused(good.get(), 4), "its memfd has 5 bytes, and it says 4; send the memfd's size");
    expect_equal(refused(good.get(), 6), "its memfd has 5 bytes, and it says 6; send the memfd's size");
    expect_equal(refused(good.get(), 0), "it has 0 bytes; send 1 to 8388608");
    expect_equal(refused(good.get(), kPacketLimit + 1), "it has 8388609 bytes; send 1 to 8388608");
    expect_equal(refused(good.get(), ~std::uint64_t{0}),
                 "it has 18446744073709551615 bytes; send 1 to 8388608");
    expect_equal(refusal_of(5, {{good.get()}}, {.bytes = 4}), "it has 5 bytes; send 1 to 4");
    expect_equal(refusal_of(5, {}),
                 "it is said to lie in a memfd, and none came with it; send its descriptor last");

    std::string path = "/tmp/spank_seqpacket.XXXXXX";
    const UniqueFd file(mkstemp(path.data()));
    assert_int_equal(write(file.get(), "12345", 5), 5);
    unlink(path.c_str());
    const auto name =
        "/spank_seqpacket." + std::to_string(getpid()); // other builds' tests run beside this one
    const UniqueFd shared(shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600));
    shm_unlink(name.c_str());
    assert_int_equal(ftruncate(shared.get(), 5), 0);
    std::array<int, 2> pipe{};
    assert_int_equal(pipe2(pipe.data(), O_CLOEXEC), 0);
    const UniqueFd reading(pipe[0]);
    const UniqueFd writing(pipe[1]);
    const auto by_path = "/proc/self/fd/" + std::to_string(good.get());
    const UniqueFd no_access(open(by_path.c_str(), O_PATH | O_CLOEXEC));
    for (const int other : {file.get(), reading.get(), writing.get(), no_access.get()}) {
        const auto why = refused(other);
        if (!why.starts_with(
                "its memfd has the seals 1;")) // /tmp may be a tmpfs, whose files cannot be sealed
            expect_equal(why, "its descriptor is no memfd; make one with memfd_create(MFD_ALLOW_SEALING)");
    }
    expect_contains(refused(shared.get()), "its memfd has the seals 1; add");
    const UniqueFd write_only(open(by_path.c_str(), O_WRONLY | O_CLOEXEC));
    if (write_only)
        expect_contains(refused(write_only.get()), "send a descriptor that is open for reading");

    // Of several the last is the content.
    const Ends ends;
    const auto datagram = encode(Elsewhere{.size = 5}, 7);
    assert_int_equal(send_datagram(ends.here.get(), datagram, {{good.get(), file.get()}}), 0);
    assert_int_equal(send_datagram(ends.here.get(), datagram, {{file.get(), good.get()}}), 0);
    Packet packet;
    assert_true(receive_packet(ends.there.get(), packet) == Received::failed);
    assert_true(receive_packet(ends.there.get(), packet) == Received::packet);
    expect_equal(packet.bytes, "12345");
    assert_int_equal(packet.descriptors.size(), 1);
}

std::size_t blocks_of(int fd) {
    struct stat about{};
    assert_int_equal(fstat(fd, &about), 0);
    return static_cast<std::size_t>(about.st_blocks);
}

// Whoever keeps the descriptor keeps no memory of who has sent it.
void what_was_lent_is_taken_back(void **) {
    const Ends ends;
    const auto sent = content(kDatagramLimit + 1);
    Packet packet;
    {
        Lent lent;
        assert_int_equal(send_in_memory(ends.here.get(), sent, {}, &lent), 0);
        assert_true(receive_packet(ends.there.get(), packet, {.revocable = true}) == Received::packet);
        assert_true(packet.bytes == sent);
        assert_int_equal(send_in_memory(ends.here.get(), sent, {}, &lent), 0);
    }
    assert_true(receive_packet(ends.there.get(), packet, {.revocable = true}) == Received::failed);
    expect_contains(packet.refusal, "its memfd has 0 bytes, and it says ");
    // Read by hand: as somebody does who never reads it.
    Lent lent;
    assert_int_equal(send_in_memory(ends.here.get(), sent, {}, &lent), 0);
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    std::array<char, 64> text{};
    iovec part{.iov_base = text.data(), .iov_len = text.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    assert_true(recvmsg(ends.there.get(), &message, MSG_CMSG_CLOEXEC) > 0);
    int fd = -1;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
    const UniqueFd kept(fd);
    assert_true(blocks_of(kept.get()) * 512 >= sent.size());
    assert_true(write(kept.get(), "x", 1) < 0);
    assert_true(ftruncate(kept.get(), static_cast<off_t>(2 * sent.size())) < 0);
    lent = Lent();
    assert_int_equal(blocks_of(kept.get()), 0);
    // Who is not told that it may be taken back does not believe it.
    assert_int_equal(send_in_memory(ends.here.get(), sent, {}, &lent), 0);
    assert_true(receive_packet(ends.there.get(), packet) == Received::failed);
    expect_contains(packet.refusal, "its memfd has the seals");
}

// It is a limit for what the user's program writes.
void the_limit_of_file_sizes_is_put_aside(void **) {
    rlimit before{};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const rlimit low{.rlim_cur = 4096, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    const Ends ends;
    const auto sent = content(kDatagramLimit + 1);
    const int code = send_packet(ends.here.get(), sent);
    rlimit after{};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &after), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(code, 0);
    assert_int_equal(after.rlim_cur, 4096);
    Packet packet;
    assert_true(receive_packet(ends.there.get(), packet) == Received::packet);
    assert_true(packet.bytes == sent);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(packets_of_any_size_pass),
        cmocka_unit_test(descriptors_are_counted_without_the_memfd),
        cmocka_unit_test(only_what_is_final_is_read),
        cmocka_unit_test(what_was_lent_is_taken_back),
        cmocka_unit_test(the_limit_of_file_sizes_is_put_aside),
    };
    return cmocka_run_group_tests_name("packets", tests, nullptr, nullptr);
}
