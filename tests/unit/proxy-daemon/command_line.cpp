// SPDX-License-Identifier: GPL-2.0-or-later
// How the daemon is started, and what it says when it cannot be.
#include "common/unix_socket.hpp"
#include "proxy_process.hpp"

#include <csignal>
#include <fstream>
#include <iterator>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace singularity::test;

void help_and_version(void **) {
    const Scratch scratch;
    const auto help = run_proxyd(scratch.path(), {"--help"});
    assert_int_equal(help.status, 0);
    for (const auto *option :
         {"--driver", "--device", "--socket", "--socket-fd", "--window-area", "--window-size",
          "--node-devices", "--max-clients", "--ring-size", "--user", "--ready-fd", "--idle-exit",
          "--die-with-parent", "--with-first-client", "--log-file", "--reductions", "--nccl"})
        expect_contains(help.said, option);
    assert_int_equal(run_proxyd(scratch.path(), {"--version"}).status, 0);
}

void options_are_checked(void **) {
    const Scratch scratch;
    const auto socket = (scratch.path() / "s").native();
    const auto refused = [&](std::vector<std::string> arguments, std::string_view why) {
        const auto ran = run_proxyd(scratch.path(), std::move(arguments));
        assert_true(ran.status > 0);
        expect_contains(ran.said, why);
    };
    const std::string driver = SINGULARITY_FAKE_DRIVER;
    refused({}, "--socket is required");
    refused({"--socket", socket, "--window-area", "abc"}, "write BEGIN-END");
    refused({"--socket", socket, "--window-area", "1x-2"}, "is no address");
    refused({"--socket", socket, "--window-area", "0x40000000000-0x30000000000"},
            "its end must lie behind its begin");
    refused({"--socket", socket, "--window-area", "0x1001-0x30000000000"}, "multiples of 2 MiB");
    refused({"--socket", socket, "--window-size", "100TB"}, "must be a multiple of 2 MiB and fit");
    refused({"--socket", socket, "--node-devices", "0"}, "--node-devices");
    refused({"--socket", socket, "--ring-size", "100000"}, "power of two");
    refused({"--socket", socket, "--device", "-1"}, "--device");
    refused({"--socket", socket, "--max-clients", "0"}, "--max-clients");
    refused({"--socket", socket, "--reductions", "somewhere"}, "--reductions");
    refused({"--socket", socket, "--ready-fd", "77"}, "descriptor 77 is not open");
    refused({"--socket", socket, "--socket-fd", "77"}, "descriptor 77 is not open");
    refused({"--socket", socket, "--neighbours-fd", "77"}, "descriptor 77 is not open");
    refused({"--socket", socket, "--rendezvous", "unix:@nowhere"}, "both, or neither");
    refused({"--socket", socket, "--address", "tcp:127.0.0.1:0"}, "they need --rendezvous");
    refused({"--socket", socket, "--rendezvous", "unix:@nowhere", "--job-key-fd", "77"},
            "descriptor 77 is not open");
    const int empty = open("/dev/null", O_RDONLY); // inherited
    refused({"--socket", socket, "--driver", driver, "--rendezvous", "unix:@nowhere", "--job-key-fd",
             std::to_string(empty)},
            "32 bytes");
    refused({"--socket", socket, "--socket-fd", std::to_string(empty)}, "it is not a socket that listens");
    close(empty);
    refused(
        {"--socket", socket, "--driver", driver, "--reductions", "device", "--nccl", "/nowhere/libnccl.so.2"},
        "cannot open /nowhere/libnccl.so.2");
    refused({"--socket", socket, "--driver", driver, "--reductions", "device", "--nccl", driver},
            "it has no nccl");
    refused({"--socket", std::string(200, 'a')}, "1 to 107 bytes");
    refused({"--socket", socket, "--driver", "/nonexistent/libcuda.so.1"}, "/nonexistent/libcuda.so.1");
    refused({"--socket", socket, "--driver", "libc.so.6"}, "it has no cuInit");
    refused({"--socket", socket, "--driver", driver, "--device", "7"}, "the driver has 2 devices");
    refused({"--socket", "/nonexistent/s", "--driver", driver}, "/nonexistent");
    assert_false(std::filesystem::exists(socket));
}

void a_living_socket_is_respected_a_dead_one_replaced(void **) {
    const Scratch scratch;
    {
        const ProxyProcess first(scratch.path());
        const Scratch elsewhere;
        const auto second = run_proxyd(
            elsewhere.path(), {"--driver", SINGULARITY_FAKE_DRIVER, "--socket", first.socket().native()});
        assert_int_equal(second.status, 1);
        expect_contains(second.said, "another daemon listens on it");
        const Client client(first.socket());
        // Its end is kill -9: the socket stays.
    }
    assert_true(std::filesystem::exists(scratch.path() / "proxy.sock"));
    const ProxyProcess next(scratch.path());
    next.expect_log("left over");
    const Client client(next.socket());
    // What is no socket is left alone.
    const auto file = scratch.path() / "file";
    std::ofstream(file) << "precious";
    const auto ran =
        run_proxyd(scratch.path(), {"--driver", SINGULARITY_FAKE_DRIVER, "--socket", file.native()});
    assert_int_equal(ran.status, 1);
    expect_contains(ran.said, "is no socket");
    assert_int_equal(std::filesystem::file_size(file), 8);
}

// It needs no file of its own, nor a path that fits into an address, and leaves the socket where it is.
void a_socket_is_handed_in(void **) {
    const Scratch scratch;
    const auto path = scratch.path() / "handed.sock";
    const auto socket = need(singularity::listen_unix(path, 0600, 16));
    fcntl(socket.get(), F_SETFD, 0); // inherited
    const std::vector<std::string> handed{"--socket-fd", std::to_string(socket.get())};
    {
        ProxyProcess proxy(scratch.path(), handed);
        {
            const Client client(path);
        }
        {
            const Client another(path);
        }
        assert_false(std::filesystem::exists(proxy.socket()));
        assert_int_equal(proxy.end(SIGTERM), 0);
    }
    const std::string far(200, 'a');
    std::vector<std::string> arguments{"--driver", SINGULARITY_FAKE_DRIVER, "--socket",
                                       far,        "--idle-exit",           "1"};
    arguments.insert(arguments.end(), handed.begin(), handed.end());
    const auto ran = run_proxyd(scratch.path(), arguments);
    assert_int_equal(ran.status, 0);
    expect_contains(ran.said, "on " + far);
    assert_true(std::filesystem::is_socket(path));
}

void it_dies_with_its_parent(void **) {
    const Scratch scratch;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        const ProxyProcess proxy(scratch.path());
        const pid_t pid = proxy.pid();
        if (write(ends[1], &pid, sizeof(pid)) != sizeof(pid))
            _exit(1);
        _exit(0); // no destructor
    }
    pid_t daemon = 0;
    assert_int_equal(read(ends[0], &daemon, sizeof(daemon)), sizeof(daemon));
    assert_int_equal(waitpid(child, nullptr, 0), child);
    const auto gone = wait_until([&] { return !std::filesystem::exists(scratch.path() / "proxy.sock"); },
                                 soon(), "the daemon's end");
    if (!gone) {
        kill(daemon, SIGKILL);
        fail("the daemon lives on");
    }
    close(ends[0]);
    close(ends[1]);
}

void it_ends_when_idle(void **) {
    const Scratch scratch;
    const auto ran = run_proxyd(scratch.path(), {"--driver", SINGULARITY_FAKE_DRIVER, "--socket",
                                                 (scratch.path() / "s").native(), "--idle-exit", "1"});
    assert_int_equal(ran.status, 0);
    expect_contains(ran.said, "no client for 1 seconds");
}

void a_log_file_keeps_the_terminal_quiet(void **) {
    const Scratch scratch;
    const auto log = scratch.path() / "lines";
    const auto ran = run_proxyd(scratch.path(), {"--driver", SINGULARITY_FAKE_DRIVER, "--socket",
                                                 (scratch.path() / "s").native(), "--idle-exit", "1",
                                                 "--log-file", log.native()});
    assert_int_equal(ran.status, 0);
    expect_equal(ran.said, "");
    std::ifstream file(log);
    expect_contains(std::string(std::istreambuf_iterator<char>(file), {}),
                    "info: singularity: proxyd: serving fake device");
    // What is wrong is said in both places.
    const auto failed =
        run_proxyd(scratch.path(), {"--driver", "/nonexistent/libcuda.so.1", "--socket",
                                    (scratch.path() / "s").native(), "--log-file", log.native()});
    assert_int_equal(failed.status, 1);
    expect_contains(failed.said, "/nonexistent/libcuda.so.1");
    std::ifstream again(log);
    expect_contains(std::string(std::istreambuf_iterator<char>(again), {}), "/nonexistent/libcuda.so.1");
    const auto refused = run_proxyd(
        scratch.path(), {"--socket", (scratch.path() / "s").native(), "--log-file", "/nonexistent/log"});
    assert_int_equal(refused.status, 1);
    expect_contains(refused.said, "/nonexistent/log");
}

// Only root can serve somebody else; then root is served as well.
void another_user_is_refused(void **) {
    if (geteuid() != 0)
        skip("only root can be two users");
    const Scratch scratch;
    std::filesystem::permissions(scratch.path(), std::filesystem::perms::all);
    const ProxyProcess proxy(scratch.path(), {"--user", "12345"});
    const Client root(proxy.socket());
    const pid_t child = fork();
    if (child == 0) {
        if (setresuid(54321, 54321, 54321) != 0)
            _exit(1);
        auto link = singularity::channel::Link::connect(proxy.socket(), soon());
        const auto answer = link ? link->receive(soon()) : std::unexpected(link.error());
        const bool refused = answer && answer->type == singularity::channel::PacketType::refusal;
        _exit(refused ? 0 : 2);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    proxy.expect_log("uid 54321 is not served");
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(help_and_version),
        cmocka_unit_test(options_are_checked),
        cmocka_unit_test(a_living_socket_is_respected_a_dead_one_replaced),
        cmocka_unit_test(a_socket_is_handed_in),
        cmocka_unit_test(it_dies_with_its_parent),
        cmocka_unit_test(it_ends_when_idle),
        cmocka_unit_test(a_log_file_keeps_the_terminal_quiet),
        cmocka_unit_test(another_user_is_refused),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
