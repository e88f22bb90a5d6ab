// SPDX-License-Identifier: GPL-2.0-or-later
// The built plugins, loaded as slurm's loader does it, into a program that has the few symbols they need and
// is not slurmctld: as in a client. Arguments: the two plugins, their two fake backing plugins, a backing
// plugin that lacks one operation.
#include "cmocka.hpp"
#include "priority_operations.hpp"
#include "select-plugin/fake_host.hpp"
#include "select_operations.hpp"

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <slurm/slurm_version.h>

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

std::vector<std::string> log_lines;
std::string last_operation;
long last_arguments = 0;
std::string backing_path; // what the loader finds for any type
std::string asked_type;
int unloaded = 0;

void log_line(const char *format, va_list arguments) {
    std::array<char, 1024> line{};
    // NOLINTNEXTLINE(clang-diagnostic-format-nonliteral): as slurm's own functions
    (void)std::vsnprintf(line.data(), line.size(), format, arguments);
    log_lines.emplace_back(line.data());
}

} // namespace

namespace singularity::test {

void note(const char *operation, long arguments) {
    last_operation = operation;
    last_arguments = arguments;
}

} // namespace singularity::test

EXPORTED __attribute__((format(printf, 1, 2))) void slurm_error(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    log_line(format, arguments);
    va_end(arguments);
}
EXPORTED __attribute__((format(printf, 1, 2))) void slurm_info(const char * /*format*/, ...) {}
EXPORTED __attribute__((format(printf, 1, 2))) void slurm_debug(const char * /*format*/, ...) {}
EXPORTED void *slurm_plugin_load_and_link(const char *type, int count, const char ** /*names*/,
                                          void ** /*pointers*/) {
    asked_type = type;
    // With names given, slurm's loader ends the process where one is missing.
    return count == 0 && !backing_path.empty() ? dlopen(backing_path.c_str(), RTLD_LAZY) : nullptr;
}
EXPORTED void slurm_plugin_unload(void *handle) {
    ++unloaded;
    dlclose(handle);
}

namespace {

using namespace singularity;
using test::expect_contains;
using test::expect_equal;

struct Arguments {
    std::string select;
    std::string priority;
    std::string select_backing;
    std::string priority_backing;
    std::string incomplete_backing;
};

const Arguments &arguments(void **state) { return *static_cast<const Arguments *>(*state); }

class Loaded {
  public:
    explicit Loaded(const std::string &path) : handle_(dlopen(path.c_str(), RTLD_LAZY)) {
        if (handle_ == nullptr)
            test::fail(dlerror());
    }

    template <class Type>
    Type *symbol(const char *name) const {
        void *const found = dlsym(handle_, name);
        if (found == nullptr)
            test::fail(std::string("not exported: ") + name);
        return reinterpret_cast<Type *>(found);
    }
    [[nodiscard]] bool has(const char *name) const { return dlsym(handle_, name) != nullptr; }

  private:
    void *handle_;
};

void loader_finds_what_it_looks_for(void **state) {
    const Loaded select(arguments(state).select);
    expect_equal(select.symbol<const char>("plugin_type"), "select/cons_tres_singularity");
    assert_int_equal(*select.symbol<const std::uint32_t>("plugin_version"), SLURM_VERSION_NUMBER);
    const bool one_select_plugin = SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 5, 0);
    assert_int_equal(*select.symbol<const std::uint32_t>("plugin_id"), one_select_plugin ? 109 : 188);
    const Loaded priority(arguments(state).priority);
    expect_equal(priority.symbol<const char>("plugin_type"), "priority/singularity");
    assert_int_equal(*priority.symbol<const std::uint32_t>("plugin_version"), SLURM_VERSION_NUMBER);
    // Nothing else may meet symbols of the host program.
    assert_false(select.has("_ZN11singularity6Plugin4loadEv"));
}

void missing_backing_is_an_error_in_the_log(void **state) {
    const Loaded select(arguments(state).select);
    backing_path.clear();
    log_lines.clear();
    assert_int_equal(select.symbol<int()>("init")(), -1);
    expect_equal(asked_type, "select/cons_tres");
    assert_int_equal(log_lines.size(), 1);
    expect_contains(log_lines.front(), "cannot load select/cons_tres");
}

void backing_without_an_operation_is_named_and_unloaded(void **state) {
    const Loaded select(arguments(state).select);
    backing_path = arguments(state).incomplete_backing;
    log_lines.clear();
    unloaded = 0;
    assert_int_equal(select.symbol<int()>("init")(), -1);
    assert_int_equal(log_lines.size(), 1);
    expect_contains(log_lines.front(), "it has no select_p_job_ready");
    assert_int_equal(unloaded, 1);
}

template <class Names>
void expect_all_forwarded(const Loaded &plugin, const Names &names, const std::string &backing,
                          const char *type) {
    backing_path = backing;
    log_lines.clear();
    unloaded = 0;
    assert_int_equal(plugin.symbol<int()>("init")(), 0);
    expect_equal(asked_type, type);
    assert_true(log_lines.empty());
    for (const char *const name : names) {
        // Integer arguments come in the same registers whatever their types; surplus ones are not looked at.
        last_operation.clear();
        const auto call = plugin.symbol<long(long, long, long, long, long, long)>(name);
        (void)call(0, 0, 0, 0, 0, 0);
        expect_equal(last_operation, name);
    }
    assert_int_equal(plugin.symbol<int()>("fini")(), 0);
    assert_int_equal(unloaded, 1);
    // As when a controller takes over, gives back and takes over again.
    assert_int_equal(plugin.symbol<int()>("init")(), 0);
    assert_int_equal(plugin.symbol<int()>("fini")(), 0);
    assert_int_equal(unloaded, 2);
}

void every_select_operation_reaches_the_backing(void **state) {
    expect_all_forwarded(Loaded(arguments(state).select), select_operations::kNames,
                         arguments(state).select_backing, "select/cons_tres");
}

void every_priority_operation_reaches_the_backing(void **state) {
    expect_all_forwarded(Loaded(arguments(state).priority), priority_operations::kNames,
                         arguments(state).priority_backing, "priority/multifactor");
}

void arguments_and_results_pass_unchanged(void **state) {
    const Loaded select(arguments(state).select);
    backing_path = arguments(state).select_backing;
    assert_int_equal(select.symbol<int()>("init")(), 0);
    // One power of two per argument of select_p_job_test(); the tenth exists since 24.11.
    const bool tenth = SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(24, 11, 0);
    const auto job_test = select.symbol<int(long, long, std::uint32_t, std::uint32_t, std::uint32_t,
                                            std::uint16_t, long, long, long, long)>("select_p_job_test");
    assert_int_equal(job_test(1, 2, 4, 8, 16, 32, 64, 128, 256, 512), 7);
    assert_int_equal(last_arguments, tenth ? 1023 : 511);
    assert_int_equal(select.symbol<int()>("fini")(), 0);
}

} // namespace

int main(int argc, char **argv) {
    if (argc != 6) {
        print_error("usage: %s SELECT PRIORITY SELECT-BACKING PRIORITY-BACKING INCOMPLETE-BACKING\n",
                    argv[0]);
        return 2;
    }
    Arguments given{argv[1], argv[2], argv[3], argv[4], argv[5]};
    const CMUnitTest tests[] = {
        cmocka_unit_test_prestate(loader_finds_what_it_looks_for, &given),
        cmocka_unit_test_prestate(missing_backing_is_an_error_in_the_log, &given),
        cmocka_unit_test_prestate(backing_without_an_operation_is_named_and_unloaded, &given),
        cmocka_unit_test_prestate(every_select_operation_reaches_the_backing, &given),
        cmocka_unit_test_prestate(every_priority_operation_reaches_the_backing, &given),
        cmocka_unit_test_prestate(arguments_and_results_pass_unchanged, &given),
    };
    return cmocka_run_group_tests_name("select_plugin_loading", tests, nullptr, nullptr);
}
