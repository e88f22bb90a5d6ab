// SPDX-License-Identifier: GPL-2.0-or-later
#include "seqpacket.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL // before glibc 2.38
#define MFD_NOEXEC_SEAL 8U
#endif

namespace singularity::node {

namespace {

constexpr int kRevocableSeals = F_SEAL_SEAL | F_SEAL_GROW | F_SEAL_WRITE;
constexpr int kSeals = kRevocableSeals | F_SEAL_SHRINK;

// Writing to a memfd is writing to a file: RLIMIT_FSIZE (setrlimit(2)) ends who does more. The limit is for
// what the user's program writes, so that its soft value is put aside for the moment.
class FileSizeLimit {
  public:
    explicit FileSizeLimit(std::size_t size) {
        if (getrlimit(RLIMIT_FSIZE, &before_) != 0)
            return;
        enough_ = before_.rlim_cur >= size;
        if (enough_ || before_.rlim_max < size)
            return;
        const rlimit raised{.rlim_cur = before_.rlim_max, .rlim_max = before_.rlim_max};
        enough_ = raised_ = setrlimit(RLIMIT_FSIZE, &raised) == 0;
    }
    FileSizeLimit(const FileSizeLimit &) = delete;
    FileSizeLimit &operator=(const FileSizeLimit &) = delete;
    FileSizeLimit(FileSizeLimit &&) = delete;
    FileSizeLimit &operator=(FileSizeLimit &&) = delete;
    ~FileSizeLimit() {
        if (raised_)
            setrlimit(RLIMIT_FSIZE, &before_);
    }

    [[nodiscard]] bool enough() const { return enough_; }

  private:
    rlimit before_{};
    bool enough_ = true;
    bool raised_ = false;
};

// 0, or errno.
int fill(int memory, std::string_view bytes, int seals) {
    const FileSizeLimit limit(bytes.size());
    if (!limit.enough())
        return EFBIG;
    while (!bytes.empty()) {
        const ssize_t written = write(memory, bytes.data(), bytes.size());
        if (written < 0 && errno != EINTR)
            return errno;
        bytes.remove_prefix(written < 0 ? 0 : static_cast<std::size_t>(written));
    }
    return fcntl(memory, F_ADD_SEALS, seals) == 0 ? 0 : errno;
}

int make_memory() {
    constexpr const char *kName = "singularity-packet";
    const int memory = memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    // Before Linux 6.3 there is no such flag; since then vm.memfd_noexec may demand it.
    return memory < 0 && errno == EINVAL ? memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING) : memory;
}

// Nothing, or why the content of the packet is not taken.
std::string fetch(int memory, std::uint64_t size, const Allowed &allowed, std::string &into) {
    if (size == 0 || size > allowed.bytes)
        return "it has " + std::to_string(size) + " bytes; send 1 to " + std::to_string(allowed.bytes);
    const int seals = fcntl(memory, F_GET_SEALS);
    if (seals < 0)
        return "its descriptor is no memfd; make one with memfd_create(MFD_ALLOW_SEALING)";
    if (const int wanted = allowed.revocable ? kRevocableSeals : kSeals; (seals & wanted) != wanted)
        return "its memfd has the seals " + std::to_string(seals) + "; add F_SEAL_WRITE, F_SEAL_GROW, " +
               (allowed.revocable ? "" : "F_SEAL_SHRINK ") + "and F_SEAL_SEAL: " + std::to_string(wanted);
    struct stat about{};
    if (fstat(memory, &about) != 0 || std::cmp_not_equal(about.st_size, size))
        return "its memfd has " + std::to_string(about.st_size) + " bytes, and it says " +
               std::to_string(size) + "; send the memfd's size";
    into.resize(size);
    for (std::size_t done = 0; done < size;) {
        const ssize_t got = pread(memory, into.data() + done, size - done, static_cast<off_t>(done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return "its memfd ends after " + std::to_string(done) + " of " + std::to_string(size) +
                   " bytes, or cannot be read; send a descriptor that is open for reading";
        done += static_cast<std::size_t>(got);
    }
    return {};
}

} // namespace

Lent::~Lent() {
    if (fd_ < 0)
        return;
    static_cast<void>(ftruncate(fd_, 0) == 0); // no more can be done
    close(fd_);
}

Descriptors::~Descriptors() {
    for (const int fd : fds_)
        if (fd >= 0)
            close(fd);
}

void widen(int socket) {
    // The kernel counts its own overhead as well (socket(7)); the forced form is root's.
    const int size = kDatagramLimit;
    if (setsockopt(socket, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size)) != 0)
        setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
}

int send_packet(int socket, std::string_view bytes, std::span<const int> descriptors) {
    // EMSGSIZE also where the socket has not been widened, or only as far as net.core.wmem_max let it.
    const int code = send_datagram(socket, bytes, descriptors);
    return code == EMSGSIZE ? send_in_memory(socket, bytes, descriptors) : code;
}

int send_in_memory(int socket, std::string_view bytes, std::span<const int> descriptors, Lent *lent) {
    if (bytes.size() > kPacketLimit || descriptors.size() > kTrustedDescriptorLimit)
        return EMSGSIZE;
    Descriptors memory;
    const int made = make_memory();
    if (made < 0)
        return errno;
    memory.add(made);
    if (const int code = fill(made, bytes, lent == nullptr ? kSeals : kRevocableSeals); code != 0)
        return code;
    std::vector<int> all(descriptors.begin(), descriptors.end());
    all.push_back(made);
    const int code = send_datagram(socket, encode(Elsewhere{.size = bytes.size()}), all);
    if (code == 0 && lent != nullptr)
        *lent = Lent(memory.take_last());
    return code;
}

int send_datagram(int socket, std::string_view bytes, std::span<const int> descriptors) {
    if (bytes.size() > kDatagramLimit || descriptors.size() > kTrustedDescriptorLimit + 1)
        return EMSGSIZE;
    // sendmsg(2) does not write there
    iovec part{.iov_base = const_cast<char *>(bytes.data()),
               .iov_len = bytes.size()}; // NOLINT(cppcoreguidelines-pro-type-const-cast)
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * (kTrustedDescriptorLimit + 1))> control{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (!descriptors.empty()) {
        message.msg_control = control.data();
        message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
        cmsghdr *const head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(descriptors.size_bytes());
        std::memcpy(CMSG_DATA(head), descriptors.data(), descriptors.size_bytes());
    }
    for (;;) {
        if (sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
            return 0;
        if (errno != EINTR)
            return errno;
    }
}

namespace {

// ECONNRESET tells, once, that the other end has hung up without having read all it was sent; what it had
// sent itself lies there still.
ssize_t receive(int socket, msghdr &message, int flags) {
    for (;;) {
        const ssize_t got = recvmsg(socket, &message, flags | MSG_DONTWAIT);
        if (got >= 0 || (errno != EINTR && errno != ECONNRESET))
            return got;
    }
}

} // namespace

Received receive_packet(int socket, Packet &into, const Allowed &allowed) {
    const auto refuse = [&](std::string why) {
        into.refusal = std::move(why);
        errno = EBADMSG;
        return Received::failed;
    };
    into = {};
    // The length of what comes first; nothing is taken yet.
    msghdr none{};
    ssize_t got = receive(socket, none, MSG_PEEK | MSG_TRUNC);
    if (got < 0)
        return errno == EAGAIN ? Received::nothing : Received::failed;
    if (got == 0)
        return Received::hung_up;
    into.bytes.resize(std::min(static_cast<std::size_t>(got), kDatagramLimit)); // MSG_TRUNC tells of more
    iovec part{.iov_base = into.bytes.data(), .iov_len = into.bytes.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * (kTrustedDescriptorLimit + 1))> control{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    // One more than it may bring: that of a memfd.
    message.msg_controllen = std::min(control.size(), CMSG_SPACE(sizeof(int) * (allowed.descriptors + 1)));
    got = receive(socket, message, MSG_CMSG_CLOEXEC);
    if (got <= 0)
        return Received::failed;
    for (cmsghdr *head = CMSG_FIRSTHDR(&message); head != nullptr; head = CMSG_NXTHDR(&message, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
            continue;
        const std::size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < count; ++i) {
            int fd = -1;
            std::memcpy(&fd, CMSG_DATA(head) + (i * sizeof(int)), sizeof(fd));
            into.descriptors.add(fd);
        }
    }
    into.bytes.resize(static_cast<std::size_t>(got));
    if ((message.msg_flags & MSG_TRUNC) != 0)
        return refuse("its datagram has more than " + std::to_string(kDatagramLimit) +
                      " bytes; send a memfd");
    const auto elsewhere = decode<Elsewhere>(into.bytes);
    if ((message.msg_flags & MSG_CTRUNC) != 0 ||
        into.descriptors.size() > allowed.descriptors + (elsewhere ? 1 : 0))
        return refuse("more descriptors came with it than the " + std::to_string(allowed.descriptors) +
                      " that it may have, or than this process may have open");
    if (!elsewhere)
        return Received::packet;
    if (into.descriptors.size() == 0)
        return refuse("it is said to lie in a memfd, and none came with it; send its descriptor last");
    Descriptors memory;
    memory.add(into.descriptors.take_last());
    if (auto why = fetch(memory.all()[0], elsewhere->size, allowed, into.bytes); !why.empty())
        return refuse(std::move(why));
    return Received::packet;
}

} // namespace singularity::node
