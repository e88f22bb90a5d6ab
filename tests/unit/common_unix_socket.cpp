// SPDX-License-Identifier: GPL-2.0-or-later
#include "cmocka.hpp"
#include "common/unix_socket.hpp"

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

using namespace singularity;
using test::expect_contains;
using test::expect_equal;
using namespace std::chrono_literals;

void addresses_have_a_limit(void **) {
    const std::string longest(sizeof(sockaddr_un::sun_path) - 1, 'x');
    const auto address = unix_address(longest);
    assert_true(address.has_value());
    expect_equal(std::string(address->sun_path), longest);
    for (const auto &bad : {longest + "x", std::string()}) {
        const auto refused = unix_address(bad);
        assert_false(refused.has_value());
        assert_int_equal(refused.error().code, ENAMETOOLONG);
        expect_contains(refused.error().message(),
                        "1 to 107 bytes is possible, this one has " + std::to_string(bad.size()));
    }
}

struct Directory {
    std::filesystem::path path;
    Directory() {
        std::string name = (std::filesystem::temp_directory_path() / "unix.XXXXXX").native();
        assert_non_null(mkdtemp(name.data()));
        path = name;
    }
    Directory(const Directory &) = delete;
    Directory &operator=(const Directory &) = delete;
    ~Directory() { std::filesystem::remove_all(path); }
};

void connects_or_says_why_not(void **) {
    const Directory directory;
    const auto path = directory.path / "socket";
    const auto missing = connect_unix(path, Deadline::after(10s));
    assert_false(missing.has_value());
    assert_int_equal(missing.error().code, ENOENT);
    expect_contains(missing.error().message(), path.native());

    const UniqueFd listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const auto address = unix_address(path);
    assert_int_equal(bind(listener.get(), reinterpret_cast<const sockaddr *>(&*address), sizeof(*address)),
                     0);
    const auto deaf = connect_unix(path, Deadline::after(10s));
    assert_false(deaf.has_value());
    assert_int_equal(deaf.error().code, ECONNREFUSED);

    assert_int_equal(listen(listener.get(), 0), 0);
    const auto connected = connect_unix(path, Deadline::after(10s));
    assert_true(connected.has_value());
    assert_true((fcntl(connected->get(), F_GETFD) & FD_CLOEXEC) != 0);
    assert_true((fcntl(connected->get(), F_GETFL) & O_NONBLOCK) != 0);
    // The listener accepts nobody: its queue is full, and who comes now waits no longer than he wants.
    const auto late = connect_unix(path, Deadline::after(20ms));
    assert_false(late.has_value());
    assert_int_equal(late.error().code, ETIMEDOUT);
}

void listens_in_place_of_what_was_there(void **) {
    const Directory directory;
    const auto path = directory.path / "socket";
    for (const mode_t mode : {0600U, 0666U}) {
        const auto listener = listen_unix(path, mode, 1);
        assert_true(listener.has_value());
        assert_true((fcntl(listener->get(), F_GETFD) & FD_CLOEXEC) != 0);
        assert_true((fcntl(listener->get(), F_GETFL) & O_NONBLOCK) != 0);
        struct stat about{};
        assert_int_equal(stat(path.c_str(), &about), 0);
        assert_true(S_ISSOCK(about.st_mode));
        assert_int_equal(about.st_mode & 07777U, mode);
        assert_true(connect_unix(path, Deadline::after(10s)).has_value());
        const UniqueFd accepted(accept(listener->get(), nullptr, nullptr));
        assert_true(static_cast<bool>(accepted));
    }
    const auto nowhere = listen_unix(directory.path / "missing" / "socket", 0600, 1);
    assert_false(nowhere.has_value());
    assert_int_equal(nowhere.error().code, ENOENT);
    const auto in_the_way = listen_unix(directory.path, 0600, 1);
    assert_false(in_the_way.has_value());
    expect_contains(in_the_way.error().message(), directory.path.native());
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(addresses_have_a_limit),
        cmocka_unit_test(connects_or_says_why_not),
        cmocka_unit_test(listens_in_place_of_what_was_there),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
