// SPDX-License-Identifier: GPL-2.0-or-later
// A daemon that opens its device with its first client. That of these tests is held in cuInit as long as a
// file is there.
#include "proxy/channel/identity.hpp"
#include "proxy/control/control.hpp"
#include "proxy_process.hpp"

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <future>
#include <sstream>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace singularity::test;
namespace channel = singularity::channel;
namespace control = singularity::proxy_control;
using singularity::Deadline;
using singularity::UniqueFd;

// As long as it lives, or until let_go().
class Hold {
  public:
    explicit Hold(const Scratch &scratch) : path_(scratch.path() / "hold") {
        std::ofstream(path_).flush();
        setenv("FAKE_DRIVER_HOLD", path_.c_str(), 1);
    }
    ~Hold() {
        let_go();
        unsetenv("FAKE_DRIVER_HOLD");
    }
    Hold(const Hold &) = delete;
    Hold &operator=(const Hold &) = delete;
    Hold(Hold &&) = delete;
    Hold &operator=(Hold &&) = delete;
    void let_go() const { std::filesystem::remove(path_); }

  private:
    std::filesystem::path path_;
};

bool has_driver(const ProxyProcess &proxy) {
    std::ostringstream maps;
    maps << std::ifstream("/proc/" + std::to_string(proxy.pid()) + "/maps").rdbuf();
    return maps.str().contains(SINGULARITY_FAKE_DRIVER);
}

std::filesystem::path control_of(const Scratch &scratch) { return scratch.path() / "control.sock"; }

std::vector<std::string> late(const Scratch &scratch) {
    return {"--with-first-client", "--control", control_of(scratch).native()};
}

UniqueFd memory_file() { return UniqueFd(memfd_create("image", MFD_CLOEXEC)); }

channel::Answer greet(const std::filesystem::path &socket) {
    auto link = need(channel::Link::connect(socket, soon()));
    return need(channel::say_hello(link, {}, soon()));
}

void no_driver_before_the_first_client(void **) {
    const Scratch scratch;
    const ProxyProcess proxy(scratch.path(), late(scratch));
    assert_false(has_driver(proxy));
    {
        Client client(proxy.socket());
        client.make_context();
        assert_true(has_driver(proxy));
    }
    Client another(proxy.socket());
    another.make_context();
}

void whoever_connects_opens_it(void **) {
    const Scratch scratch;
    const ProxyProcess proxy(scratch.path(), late(scratch));
    assert_false(proxy.log().contains("serving"));
    need(channel::Link::connect(proxy.socket(), soon()));
    proxy.expect_log("serving");
    assert_true(has_driver(proxy));
}

void its_identity_is_an_answer(void **) {
    const Scratch scratch;
    const ProxyProcess proxy(scratch.path(), late(scratch));
    assert_true(identity_of(proxy.socket()).device.total_memory > 0);
}

void several_wait_for_it(void **) {
    const Scratch scratch;
    const Hold hold(scratch);
    const ProxyProcess proxy(scratch.path(), late(scratch));
    std::vector<std::future<channel::Answer>> waiting;
    for (int number = 0; number < 4; ++number)
        waiting.push_back(std::async(std::launch::async, [&] { return greet(proxy.socket()); }));
    for (const auto &one : waiting)
        assert_true(one.wait_for(std::chrono::milliseconds(100)) == std::future_status::timeout);
    hold.let_go();
    for (auto &one : waiting)
        assert_true(one.get().welcome.has_value());
}

// Of a node with many devices every process wakes all of them.
void more_wake_it_than_can_wait(void **) {
    const Scratch scratch;
    const Hold hold(scratch);
    const ProxyProcess proxy(scratch.path(), late(scratch));
    for (int number = 0; number < 1000; ++number)
        need(channel::Link::connect(proxy.socket(), soon()));
    auto waits = std::async(std::launch::async, [&] { return greet(proxy.socket()); });
    assert_true(waits.wait_for(std::chrono::milliseconds(100)) == std::future_status::timeout);
    hold.let_go();
    assert_true(waits.get().welcome.has_value());
    assert_false(proxy.log().contains("is not served"));
}

void a_device_that_is_not_there_is_told_to_clients(void **) {
    const Scratch scratch;
    auto options = late(scratch);
    options.insert(options.end(), {"--device", "7"});
    ProxyProcess proxy(scratch.path(), options);
    const auto answer = greet(proxy.socket());
    assert_true(answer.refusal.has_value());
    expect_contains(answer.refusal->text.data(), "it has no device: ");
    expect_contains(answer.refusal->text.data(), "the driver has 2 devices");
    // Whoever comes a moment later hears it as well, as one that had only woken the daemon.
    expect_contains(greet(proxy.socket()).refusal.value().text.data(), "it has no device: ");
    const int status = proxy.end(0); // by itself
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    expect_contains(proxy.log(), "the driver has 2 devices");
}

void who_asks_what_it_is_is_told_so_as_well(void **) {
    const Scratch scratch;
    auto options = late(scratch);
    options.insert(options.end(), {"--device", "7"});
    const ProxyProcess proxy(scratch.path(), options);
    const auto identity = channel::identify(proxy.socket(), soon());
    assert_false(identity.has_value());
    expect_contains(identity.error().message(), "the driver has 2 devices");
}

// Nobody is saved with a socket, whatever the driver is at.
void saved_before_the_first_client_and_while_the_driver_starts(void **) {
    const Scratch scratch;
    const Hold hold(scratch);
    const ProxyProcess proxy(scratch.path(), late(scratch));
    const auto empty = memory_file();
    assert_int_equal(need(control::prepare(control_of(scratch), empty.get(), {}, soon())).memory_bytes, 0);
    assert_int_equal(need(control::save(control_of(scratch), empty.get(), {}, soon())).clients, 0);
    assert_false(has_driver(proxy));
    assert_int_equal(lseek(empty.get(), 0, SEEK_SET), 0);
    assert_int_equal(need(control::restore(control_of(scratch), empty.get(), {}, soon())).clients, 0);
    assert_false(has_driver(proxy));

    auto waits = std::async(std::launch::async, [&] { return greet(proxy.socket()); });
    assert_true(wait_until([&] { return has_driver(proxy); }, soon(), "the driver").has_value());
    const auto image = memory_file();
    const auto saved =
        need(control::save(control_of(scratch), image.get(),
                           {.afterwards = control::Afterwards::detach, .progress = {}}, soon()));
    assert_int_equal(saved.clients, 0);
    assert_true(waits.wait_for(std::chrono::seconds(20)) == std::future_status::ready);
    const auto refused = waits.get();
    assert_true(refused.refusal.has_value());
    assert_int_equal(refused.refusal->reason, channel::RefusalReason::moved);
    need(control::resume(control_of(scratch), soon()));
    hold.let_go();
    Client client(proxy.socket());
    client.make_context();
}

// A client that is refused because its node is saved comes again, also to one that nobody had woken.
void one_that_is_asked_while_it_is_saved_starts_afterwards(void **) {
    const Scratch scratch;
    const ProxyProcess proxy(scratch.path(), late(scratch));
    const auto image = memory_file();
    need(control::save(control_of(scratch), image.get(),
                       {.afterwards = control::Afterwards::detach, .progress = {}}, soon()));
    const auto refused = greet(proxy.socket());
    assert_true(refused.refusal.has_value());
    assert_int_equal(refused.refusal->reason, channel::RefusalReason::moved);
    assert_false(has_driver(proxy));
    need(control::resume(control_of(scratch), soon()));
    Client client(proxy.socket());
    client.make_context();
}

void it_ends_while_the_driver_starts(void **) {
    const Scratch scratch;
    const Hold hold(scratch);
    ProxyProcess proxy(scratch.path(), late(scratch));
    need(channel::Link::connect(proxy.socket(), soon()));
    assert_true(wait_until([&] { return has_driver(proxy); }, soon(), "the driver").has_value());
    const int status = proxy.end(SIGTERM);
    assert_true(WIFEXITED(status));
    assert_false(std::filesystem::exists(proxy.socket()));
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(no_driver_before_the_first_client),
        cmocka_unit_test(whoever_connects_opens_it),
        cmocka_unit_test(its_identity_is_an_answer),
        cmocka_unit_test(several_wait_for_it),
        cmocka_unit_test(more_wake_it_than_can_wait),
        cmocka_unit_test(a_device_that_is_not_there_is_told_to_clients),
        cmocka_unit_test(who_asks_what_it_is_is_told_so_as_well),
        cmocka_unit_test(saved_before_the_first_client_and_while_the_driver_starts),
        cmocka_unit_test(one_that_is_asked_while_it_is_saved_starts_afterwards),
        cmocka_unit_test(it_ends_while_the_driver_starts),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
